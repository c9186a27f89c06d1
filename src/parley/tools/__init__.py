"""Tools and their providers: calls of MCP servers and tool packs, by agents and by callers."""
