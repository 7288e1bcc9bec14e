"""What the judge saw, kept and judged again."""
