"""Rules of tools: packs, policy, redaction and MCP names as pure functions of values."""
