"""Agents as the tools of an MCP server (`/mcp`, streamable HTTP): any MCP client can use any agent."""
