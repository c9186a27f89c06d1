"""The Agent2Agent protocol."""
