"""The YAML file: read, checked, explained, turned into policies."""
