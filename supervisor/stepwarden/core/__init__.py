"""What decides: pure functions of (state, evidence, now). No clock, no I/O, no asyncio."""
