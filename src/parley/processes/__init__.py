"""Programs that the server runs, and that end with it."""
