"""Showing a token to somebody who may not know what to do with it."""

import httpx2

_TOKEN = b"authorization"


class Introduced(httpx2.AsyncBaseTransport):
    """Whoever answers 401 to a token is asked once more without it: that they did nothing is what 401 means. A node
    that checks pair tokens refuses the second time too; one that asks nobody for credentials need not know ours."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        reply = await self._inner.handle_async_request(request)
        if reply.status_code != 401 or _TOKEN not in {name.lower() for name, _ in request.headers.raw}:
            return reply
        await reply.aclose()
        bare = httpx2.Request(
            request.method, request.url, content=request.content, extensions=request.extensions,
            headers=[(name, value) for name, value in request.headers.raw if name.lower() != _TOKEN],
        )  # fmt: skip
        return await self._inner.handle_async_request(bare)

    async def aclose(self) -> None:
        await self._inner.aclose()
