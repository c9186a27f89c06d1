"""Tools and their providers: what an agent or a caller can have done elsewhere."""
