"""Chaos test: all features under load while faults happen: `make chaos`. See docs/chaos.md."""
