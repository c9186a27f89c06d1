"""Development tools; no part of the server."""
