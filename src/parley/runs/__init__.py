"""Runs: the event log, the one write path, streams, listings and retention."""
