"""Contract 002: one endpoint, five modes, and a task for everything that is asked."""
