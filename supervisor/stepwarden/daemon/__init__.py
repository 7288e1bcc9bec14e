"""The daemon: one loop that gathers, judges, advances, acts and reports."""
