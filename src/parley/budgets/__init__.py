"""Limits of principals, groups, agents and keys, and what they have spent."""
