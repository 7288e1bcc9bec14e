"""The agent that lives inside a worker and must never harm it."""
