"""Faces, one per contract: each translates requests to commands, and events to its format. Faces contain no rules."""
