"""stepwarden: a supervisor that knows a slow inference worker from a dead one."""

__version__ = "0.1.0"
