"""Orchestrations: runs that carry out a plan of steps."""
