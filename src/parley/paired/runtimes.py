"""Runtimes: programs that do an agent's work on other machines. A one-time code pairs a runtime, and a token
authenticates it.

Codes and tokens are stored as hashes. An agent has one runtime, in one record: a new pairing replaces the previous
runtime in a single write, and the previous token is remembered as replaced.
"""

import hashlib
import hmac
import secrets
import time
from collections import deque
from collections.abc import Callable

import msgspec
from msgspec import Struct

from parley.clock import Clock, now_ms
from parley.errors import InvalidPairingToken, ParleyError, RateLimited, RuntimeRevoked, Unauthenticated
from parley.ids import new_id
from parley.records import Record, Records
from parley.runs.rules.access import Principal
from parley.telemetry import tell

CODE_LIFE_S = 600
REMEMBER_MS = 30 * 24 * 3600 * 1000
"""Milliseconds for which the token of a replaced runtime is remembered as such."""
HEARTBEAT_S = 30.0
MAX_WRONG = 20
WRONG_S = 60.0
MAX_WORDS = 200

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_READ = str.maketrans({"O": "0", "I": "1", "L": "1", "-": None, " ": None})
_CODE_LENGTH = 16
_CODE, _TOKEN, _RUNTIME, _SEEN = "runtime.code", "runtime.token", "runtime", "runtime.seen"


class Runtime(Struct, frozen=True):
    id: str
    agent: str
    digest: str
    attached_at: int
    name: str = ""
    version: str = ""
    capabilities: dict[str, object] = {}

    @property
    def principal(self) -> Principal:
        return Principal("runtime", self.id, frozenset(), frozenset((self.agent,)))


class RuntimeSeen(Struct, frozen=True):
    """The last sign of life of a runtime, and the status that it reported: ready, draining or detached."""

    runtime: str
    status: str = "ready"
    at: int = 0


class Described(Struct, frozen=True):
    """The description that a program gives when it is paired."""

    name: str = ""
    version: str = ""
    capabilities: dict[str, object] = {}


class Code(Struct, frozen=True):
    """A pairing code, shown once: `XXXX-XXXX-XXXX-XXXX`, 80 bits."""

    text: str
    expires_at: int


_encode = msgspec.msgpack.Encoder().encode
_runtime = msgspec.msgpack.Decoder(Runtime).decode
_seen = msgspec.msgpack.Decoder(RuntimeSeen).decode


class Runtimes:
    def __init__(
        self,
        records: Records,
        lease_s: float = 60.0,
        clock: Clock = now_ms,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._records = records
        self.heartbeat_s = min(HEARTBEAT_S, lease_s / 2)
        self._clock = clock
        self._monotonic = monotonic
        self._wrong: deque[float] = deque(maxlen=MAX_WRONG)
        self._noted: dict[str, RuntimeSeen] = {}

    async def pair(self, agent: str) -> Code:
        """Create a code to pair a runtime with this agent."""
        text = "".join(secrets.choice(_ALPHABET) for _ in range(_CODE_LENGTH))
        now = self._clock()
        expires_at = now + CODE_LIFE_S * 1000
        await self._records.put(Record(_CODE, "", _digest(text), agent.encode(), now, expires_at))
        return Code("-".join(text[place : place + 4] for place in range(0, _CODE_LENGTH, 4)), expires_at)

    async def attach(self, code: str, described: Described) -> tuple[Runtime, str, Runtime | None]:
        """Return the runtime, its token (which cannot be read again), and the runtime that it replaces, if any.

        Deleting the code claims it: of two callers with the same code one wins.
        """
        digest = _digest(_normal(code))
        record = await self._records.get(_CODE, "", digest)
        if record is None or (record.due or 0) <= self._clock() or not await self._records.delete(_CODE, "", digest):
            self._count_wrong()
            raise InvalidPairingToken("Invalid pairing token")
        return await self._install(record.body.decode(), described)

    async def runtime_for(self, token: str) -> Runtime:
        """Return the runtime of a token, if it is still the runtime of its agent."""
        digest = _digest(token)
        record = await self._records.get(_TOKEN, "", digest)
        if record is None:
            raise Unauthenticated("The runtime token is not valid.")
        found = await self.of(record.body.decode())
        if found is None or not hmac.compare_digest(found.digest, digest):
            raise _revoked(found)
        return found

    async def of(self, agent: str) -> Runtime | None:
        record = await self._records.get(_RUNTIME, "", agent)
        return _runtime(record.body) if record else None

    async def check(self, runtime: Runtime) -> None:
        """Raise RuntimeRevoked if the runtime has been replaced or revoked."""
        found = await self.of(runtime.agent)
        if found is None or found.id != runtime.id:
            raise _revoked(found)

    async def revoke(self, agent: str) -> Runtime | None:
        """Revoke the runtime of an agent. Return it, or None if there was none."""
        found = await self.of(agent)
        if found is not None:
            await self._records.delete(_RUNTIME, "", agent)
            await self._records.delete(_SEEN, "", agent)
            await self._retire(found)
        return found

    async def note(self, runtime: Runtime, status: str | None = None) -> None:
        """Record a sign of life; `status` is None if the call carries no status. It is stored when the status changes,
        and otherwise from time to time."""
        before = self._noted.get(runtime.agent, RuntimeSeen(""))
        same = before.runtime == runtime.id
        seen = RuntimeSeen(runtime.id, status or (before.status if same else "ready"), self._clock())
        if status is None and seen.status == "detached":
            seen = msgspec.structs.replace(seen, status="ready")
        if same and seen.status == before.status and seen.at - before.at < self.heartbeat_s * 500:
            return
        self._noted[runtime.agent] = seen
        try:
            await self._records.put(Record(_SEEN, "", runtime.agent, _encode(seen), seen.at))
        except ParleyError as error:
            tell("runtime.not_noted", agent=runtime.agent, code=error.code)

    async def last_seen(self, runtime: Runtime) -> RuntimeSeen:
        record = await self._records.get(_SEEN, "", runtime.agent)
        seen = _seen(record.body) if record else None
        return (
            seen if seen is not None and seen.runtime == runtime.id else RuntimeSeen(runtime.id, at=runtime.attached_at)
        )

    def online(self, seen: RuntimeSeen) -> bool:
        """Return whether a runtime is online. Up to three heartbeats may be missed."""
        return seen.status != "detached" and self._clock() - seen.at < self.heartbeat_s * 3000

    async def word_for(self, agent: str) -> str:
        """Return the status of an agent's runtime: not paired, online or offline."""
        runtime = await self.of(agent)
        if runtime is None:
            return "not paired"
        return "online" if self.online(await self.last_seen(runtime)) else "offline"

    async def tick(self) -> None:
        """Do one round: delete codes that were not used, and tokens that were replaced long ago."""
        for kind in (_CODE, _TOKEN):
            while gone := await self._records.due(kind, self._clock()):
                for record in gone:
                    await self._records.delete(kind, record.scope, record.id)

    async def _install(self, agent: str, described: Described) -> tuple[Runtime, str, Runtime | None]:
        token, now = secrets.token_urlsafe(32), self._clock()
        runtime = Runtime(
            new_id(),
            agent,
            _digest(token),
            now,
            described.name[:MAX_WORDS],
            described.version[:MAX_WORDS],
            described.capabilities,
        )
        before = await self.of(agent)
        await self._records.put(Record(_TOKEN, "", runtime.digest, agent.encode(), now))
        await self._records.put(Record(_RUNTIME, "", agent, _encode(runtime), now))
        if before is not None:
            await self._retire(before)
        await self.note(runtime)
        return runtime, token, before

    async def _retire(self, runtime: Runtime) -> None:
        now = self._clock()
        await self._records.put(Record(_TOKEN, "", runtime.digest, runtime.agent.encode(), now, now + REMEMBER_MS))

    def _count_wrong(self) -> None:
        """Slow down clients that guess codes. Only wrong codes are limited: guesses must not lock out a valid code, and
        80 bits cannot be guessed."""
        if len(self._wrong) == MAX_WRONG:
            wait_s = self._wrong[0] + WRONG_S - self._monotonic()
            if wait_s > 0:
                raise RateLimited("Too many wrong pairing codes; try again later.", retry_after=int(wait_s) + 1)
        self._wrong.append(self._monotonic())


def _revoked(by: Runtime | None) -> RuntimeRevoked:
    return RuntimeRevoked(
        "This runtime was replaced by a newer pairing." if by else "This runtime was revoked; pair it again."
    )


def _normal(code: str) -> str:
    return code.strip().upper().translate(_READ)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
