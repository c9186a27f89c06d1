"""The MCP host: servers of tools, their sessions, and calls that end when they should."""
