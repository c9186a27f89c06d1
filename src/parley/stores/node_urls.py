"""Cache of the URLs of nodes: in this process, or in a Redis that other programs also read and write."""

import importlib
from collections.abc import Awaitable, Callable
from typing import Any

from parley import extras
from parley.cache import ExpiringCache
from parley.clock import Clock, now_ms
from parley.errors import ConfigurationError
from parley.limits import Circuit, admitted, returned
from parley.nodes.rules import RegisteredNode
from parley.telemetry import tell

LIFE_S = 300
TIMEOUT_S = 0.25


class MemoryUrls:
    """URLs in memory, kept per version of the node, so that a change by another replica is never hidden."""

    def __init__(self) -> None:
        self._recent: ExpiringCache[str, tuple[int, str, str]] = ExpiringCache(LIFE_S)

    async def get(self, node: RegisteredNode, *, internal: bool) -> str | None:
        kept = self._recent.get(node.id)
        if kept is None or kept[0] != node.version:
            return None
        return kept[1] if internal else kept[2]

    async def put(self, node: RegisteredNode, *, changed: bool) -> None:
        self._recent.put(node.id, (node.version, node.internal_url, node.external_url))

    async def forget(self, node: str) -> None:
        self._recent.drop(node)

    async def close(self) -> None:
        return


class RedisUrls:
    """URLs in Redis, under `ws:{id}:internal_url` and `ws:{id}:url`, the names of the registry contract (004). A Redis
    that does not answer is not used for a while, and the store is read instead."""

    def __init__(self, url: str, clock: Clock = now_ms) -> None:
        self._redis = _client(url)
        self._clock = clock
        self._circuit = Circuit()
        self._missed: set[str] = set()
        """Nodes whose change could not be written to Redis: its entries for them are ignored until that succeeds."""

    async def get(self, node: RegisteredNode, *, internal: bool) -> str | None:
        if node.id in self._missed:
            await self.put(node, changed=True)
            return None
        found = await self._ask(lambda redis: redis.get(_key(node.id, internal)))
        return found.decode() if isinstance(found, bytes) else None

    async def put(self, node: RegisteredNode, *, changed: bool) -> None:
        """Store the URLs. Adding a missing entry never replaces one: the value may be out of date by a moment."""
        pipeline = self._redis.pipeline(transaction=False)
        for internal, url in ((True, node.internal_url), (False, node.external_url)):
            if url:
                pipeline.set(_key(node.id, internal), url, ex=LIFE_S, nx=not changed)
            elif changed:
                pipeline.delete(_key(node.id, internal))
        told = await self._ask(lambda _: pipeline.execute())
        if changed:
            (self._missed.discard if told is not None else self._missed.add)(node.id)

    async def forget(self, node: str) -> None:
        await self._ask(lambda redis: redis.delete(_key(node, True), _key(node, False)))

    async def close(self) -> None:
        await self._redis.aclose()

    async def _ask(self, question: Callable[[Any], Awaitable[Any]]) -> Any:
        """Run a Redis command; None if there is no answer."""
        circuit = admitted(self._circuit, self._clock())
        if circuit is None:
            return None
        self._circuit = circuit
        try:
            answer = await question(self._redis)
        except (OSError, ValueError, TimeoutError, _trouble()) as error:
            self._circuit = returned(self._circuit, self._clock(), well=False)
            if self._circuit.opened_at is not None:
                tell("urls.unavailable", reason=type(error).__name__)
            return None
        self._circuit = returned(self._circuit, self._clock(), well=True)
        return answer


def _key(node: str, internal: bool) -> str:
    return f"ws:{node}:internal_url" if internal else f"ws:{node}:url"


def _client(url: str) -> Any:
    extras.check("redis", "The setting redis_url", field="redis_url")
    redis: Any = importlib.import_module("redis.asyncio")
    once = importlib.import_module("redis.asyncio.retry").Retry(importlib.import_module("redis.backoff").NoBackoff(), 0)
    try:
        return redis.Redis.from_url(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, retry=once)
    except ValueError:
        raise ConfigurationError("Setting redis_url must be the URL of a Redis server.", field="redis_url") from None


def _trouble() -> type[Exception]:
    errors: Any = importlib.import_module("redis.exceptions")
    return errors.RedisError
