"""HTTP/1.1 on asyncio streams: the client, proxy support, and the server of an adapter."""
