"""MCP host: servers of tools, their sessions, and calls with time limits."""
