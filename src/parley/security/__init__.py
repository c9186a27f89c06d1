"""Authentication of callers, and signatures that prove what this server sent. Uses no face and no store."""
