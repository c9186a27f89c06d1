"""Face of MCP (`/mcp`, streamable HTTP): agents are tools of an MCP server, so that any MCP client can use them."""
