"""The runtime contract (003): `/internal/v1`, a signed control plane over the same runs."""
