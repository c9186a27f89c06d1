"""Face of the runtime control plane (003): `/internal/v1`, signed requests over the same runs."""
