"""Session with one MCP server: started when needed, kept open, and started again after it ended."""

import asyncio
import time
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import Any, cast

import msgspec
from mcp import Client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    RequestParamsMeta,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from parley.json_values import Fields, Json
from parley.telemetry import tell
from parley.telemetry.trace import current, headers_for
from parley.tools.mcp.connection import McpConnection, without, without_in, words
from parley.tools.mcp.errors import Flooded, Gone, McpError, Nonsense, NotStarted, OpenTransport, State
from parley.tools.rules.mcp import McpServer, Progressed, ToolOffer

# Results of tools as values.

MAX_WORDS = 2_000
"""Characters of a tool's error message that are passed on."""


class McpRefused(McpError):
    """The tool or its server reports a failure. It does not count as a failure of the server."""

    code = "tool_error"
    ill = False


class TooLarge(Flooded):
    ill = False


def output_of(result: CallToolResult, most: int) -> Json:
    """Return the value of a tool's result; text that is JSON is parsed."""
    if result.is_error:
        raise McpRefused(_text(result)[:MAX_WORDS] or "The tool failed and did not say why.")
    value = _value(result)
    if (size := len(msgspec.json.encode(value))) > most:
        raise TooLarge(f"The tool's answer has {size:,} bytes; at most {most:,} are taken.")
    return value


def _value(result: CallToolResult) -> Json:
    if result.structured_content is not None:
        return cast(Json, result.structured_content)
    blocks = [_block(one) for one in result.content]
    if len(blocks) == 1 and isinstance(text := blocks[0].get("text"), str):
        return _parsed(text)
    return cast(Json, blocks)


def _block(content: Any) -> Fields:
    return content.model_dump(mode="json", by_alias=True, exclude_none=True)


def _parsed(text: str) -> Json:
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return text


def _text(result: CallToolResult) -> str:
    found = [getattr(one, "text", "") for one in result.content]
    return "\n".join(text for text in found if isinstance(text, str) and text)


MAX_TOOLS = 1_000
PROBE_S = 2.0
"""Seconds that a server may take to answer a probe after a call was canceled."""
CLOSE_S = 3.0
REST_S = 10.0
LISTEN_AGAIN_S = 5.0


class _Life:
    """One session, from its initialization to its end."""

    def __init__(self, client: Client, link: McpConnection) -> None:
        self.client = client
        self.link = link
        self.tools: list[ToolOffer] = []
        self.stale = True
        self.over = asyncio.Event()
        self.listing = asyncio.Lock()

    @property
    def is_over(self) -> bool:
        return self.over.is_set() or self.link.ended.is_set()


class McpSession:
    def __init__(self, server: McpServer, open_transport: OpenTransport) -> None:
        self.server = server
        self.state: State = "idle"
        self.reason = ""
        self.starts = 0
        self._rests_until = 0.0
        self._open_transport = open_transport
        self._ready: asyncio.Future[_Life] | None = None
        self._life: _Life | None = None
        self._owners: set[asyncio.Task[None]] = set()
        self._probes: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()

    async def offers(self) -> list[ToolOffer]:
        """Return the tools; they are requested again only after the server reports a change. If the server could not be
        started a moment ago, do not wait for it again: a call does."""
        if time.monotonic() < self._rests_until:
            raise NotStarted(self.reason)
        life = await self._alive()
        try:
            return await self._listed(life)
        except (MCPError, ValidationError, RuntimeError) as error:
            raise self._fault(life, error) from None

    async def call(self, tool: str, given: Fields, progress: Progressed | None = None) -> Json:
        """Return the tool's result; raise McpError if there is none. Cancelling this tells the server to stop."""
        life = await self._alive()
        try:
            result = await self._asked(life, tool, given, progress)
            return without_in(life.link.secrets, output_of(result, self.server.max_output_bytes))
        except asyncio.CancelledError:
            self._start_probe(life)
            raise
        except McpRefused as refused:
            raise McpRefused(without(life.link.secrets, refused.message)) from None
        except (MCPError, ValidationError, RuntimeError) as error:
            raise self._fault(life, error) from None

    async def close(self) -> None:
        self._closing.set()
        for probe in self._probes:
            probe.cancel()
        if self._owners:
            _, late = await asyncio.wait(self._owners, timeout=CLOSE_S)
            for owner in late:
                owner.cancel()
            await asyncio.gather(*self._owners, return_exceptions=True)

    async def _asked(self, life: _Life, tool: str, given: Fields, progress: Progressed | None) -> CallToolResult:
        """Call a tool without the library's `call_tool`, which checks answers against a schema that the server wrote; a
        pattern in such a schema can take forever to match."""
        params = CallToolRequestParams(name=tool, arguments=cast(dict[str, object], given))
        if traced := _traced():
            params.meta = cast("RequestParamsMeta", traced)
        request = CallToolRequest(params=params)
        callback = cast("ProgressFnT | None", progress)
        return await life.client.session.send_request(request, CallToolResult, progress_callback=callback)

    async def _alive(self) -> _Life:
        if self._closing.is_set():
            raise NotStarted("The server is being shut down.")
        if self._probes:
            # A probe shows in a moment whether the session still works; a call sent now might fail with it.
            await asyncio.wait(self._probes)
        if self._ready is None or (self._life is not None and self._life.is_over):
            self._ready, self._life = asyncio.get_running_loop().create_future(), None
            self._ready.add_done_callback(lambda ready: ready.cancelled() or ready.exception())
            owner = asyncio.get_running_loop().create_task(self._live(self._ready))
            self._owners.add(owner)
            owner.add_done_callback(self._owners.discard)
        return await asyncio.shield(self._ready)

    async def _live(self, ready: "asyncio.Future[_Life]") -> None:
        """Own the connection: the library's contexts must be entered and left by the same task, which is this one."""
        self.state, self.reason = "starting", ""
        self.starts += 1
        link = McpConnection(self.server, self._open_transport)
        life: _Life | None = None
        try:
            async with AsyncExitStack() as stack:
                life = await self._introduced(stack, link)
                ready.set_result(life)
                await self._until_over(life)
                life.over.set()
            self._ended(life, life.link.fault or Gone("The session was ended."))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - the library raises exception groups of any kind
            if life is None:
                self._not_started(ready, link, words(error, link))
            else:
                self._ended(life, link.fault or words(error, link))
        finally:
            if life is not None:
                life.over.set()
            if not ready.done():
                ready.set_exception(NotStarted("The server is being shut down."))

    async def _introduced(self, stack: AsyncExitStack, link: McpConnection) -> _Life:
        ours = Implementation(name="parley", version=version("parley-a2a"))
        client = Client(link.transport(), cache=None, client_info=ours, message_handler=self._on_message)
        async with asyncio.timeout(self.server.start_timeout_s):
            await stack.enter_async_context(client)
            life = self._life = _Life(client, link)
            await self._listed(life)
        self.state, self._rests_until = "ready", 0.0
        return life

    async def _until_over(self, life: _Life) -> None:
        loop = asyncio.get_running_loop()
        ends = [loop.create_task(_set(one)) for one in (life.over, life.link.ended, self._closing)]
        listening = loop.create_task(self._listen(life))
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*ends, listening):
                task.cancel()
            await asyncio.gather(*ends, listening, return_exceptions=True)

    async def _listed(self, life: _Life) -> list[ToolOffer]:
        async with life.listing:
            if life.stale:
                life.stale = False
                try:
                    life.tools = await self._fetched(life)
                except BaseException:
                    life.stale = True
                    raise
            return life.tools

    async def _fetched(self, life: _Life) -> list[ToolOffer]:
        found: list[ToolOffer] = []
        cursor: str | None = None
        while True:
            page = await life.client.list_tools(cursor=cursor)
            found += [_offer(self.server.name, tool) for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None or len(found) >= MAX_TOOLS:
                return found[:MAX_TOOLS]

    async def _on_message(self, message: object) -> None:
        if isinstance(message, ToolListChangedNotification) and self._life is not None:
            self._life.stale = True

    async def _listen(self, life: _Life) -> None:
        """Subscribe to changes: newer servers report them only to subscribers."""
        if life.client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        while True:
            try:
                async with life.client.listen(tools_list_changed=True) as changes:
                    if not changes.honored.tools_list_changed:
                        return
                    async for _ in changes:
                        life.stale = True
            except (SubscriptionLost, MCPError, TimeoutError):
                life.stale = True
            await asyncio.sleep(LISTEN_AGAIN_S)

    def _start_probe(self, life: _Life) -> None:
        """After a canceled call, check whether the server still answers or is blocked by that call."""
        if not life.over.is_set() and not self._closing.is_set():
            probe = asyncio.get_running_loop().create_task(self._probe(life))
            self._probes.add(probe)
            probe.add_done_callback(self._probes.discard)

    # Why: docs/decisions/tools.md#probe-an-mcp-server-after-a-canceled-call
    async def _probe(self, life: _Life) -> None:
        try:
            async with asyncio.timeout(PROBE_S):
                await life.client.list_tools()
        except Exception:  # noqa: BLE001 - after any error the server cannot be used
            tell("mcp.stuck", server=self.server.name)
            life.over.set()

    def _fault(self, life: _Life, error: Exception) -> McpError:
        if isinstance(error, MCPError) and error.code != CONNECTION_CLOSED:
            return McpRefused(without(life.link.secrets, error.message)[:2000])
        if isinstance(error, MCPError):
            return life.link.fault or Gone(without(life.link.secrets, error.message)[:2000])
        return Nonsense("The server's answer is not valid MCP.")

    def _ended(self, life: _Life, fault: McpError) -> None:
        if self._life is not life:
            return
        self.state, self.reason = "ended", fault.message
        if not self._closing.is_set():
            tell("mcp.ended", server=self.server.name, reason=fault.message, said=life.link.said)

    def _not_started(self, ready: "asyncio.Future[_Life]", link: McpConnection, fault: McpError) -> None:
        self.state, self.reason = "failed", without(link.secrets, fault.message)
        tell("mcp.not_started", server=self.server.name, reason=self.reason, said=link.said)
        self._ready = None
        self._rests_until = time.monotonic() + REST_S
        ready.set_exception(NotStarted(self.reason))


async def _set(event: asyncio.Event) -> None:
    await event.wait()


def _offer(server: str, tool: Tool) -> ToolOffer:
    """Return a tool. It counts as writing unless its server says that it only reads."""
    reads = tool.annotations is not None and tool.annotations.read_only_hint is True
    return ToolOffer(server, tool.name, tool.description or "", cast(Fields, tool.input_schema), writes=not reads)


def _traced() -> dict[str, str]:
    """Return the trace context of a call for MCP's `_meta`; if the library has a span of its own, it uses that
    instead."""
    return {name: value for name, value in headers_for(current()).items() if name.startswith("trace")}
