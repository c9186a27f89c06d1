"""Contract 002: one endpoint, five modes, a task for everything that is asked, and what is fetched with a link."""
