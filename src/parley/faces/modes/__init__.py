"""Contract 002: modes and actions, and what is fetched with a link."""
