"""Deterministic simulation of a cluster: the standard scenario, and the command `make simulate`."""
