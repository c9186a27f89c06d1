"""Nodes: registration, hierarchy, liveness, discovery, proxied calls and delegations."""
