"""Local files: profiles with their tokens, and locks."""
