"""Engines that get the agent without a change of theirs."""
