"""Programs that run beside the server, and end with it."""
