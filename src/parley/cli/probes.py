"""Likely misconfigurations that show only when somebody is asked: the database, Redis, the issuer, the port."""

import asyncio
import socket
from collections.abc import AsyncIterator

import httpx2

from parley.cli.checks import Finding, error, warning
from parley.clock import now_ms
from parley.definitions.reading import Reading
from parley.drivers.agentzero import AgentZeroDriver
from parley.errors import ConfigurationError, ReplyTooLarge
from parley.security.replies import open_client
from parley.settings import Settings, postgres_url
from parley.stores.pool import MAX_CONNECTIONS, TROUBLE, connect
from parley.stores.schema import migrations

ANSWER_S = 5.0
OLDEST_POSTGRES = 14
SKEW_MS = 2000


async def asked_findings(settings: Settings, reading: Reading) -> AsyncIterator[Finding]:
    for found in _port(settings):
        yield found
    if settings.store == "postgres":
        async for found in _postgres(settings):
            yield found
    if settings.redis_url is not None and not await _redis_answers(settings.redis_url.get_secret_value()):
        yield error("redis_unreachable", "Redis does not answer.", "Start it, mend redis_url, or leave it out.")
    if settings.oidc_issuer is not None:
        place = settings.oidc_jwks_url or f"{settings.oidc_issuer.rstrip('/')}/.well-known/openid-configuration"
        if not await _answers(place):
            yield error(
                "issuer_unreachable", f"{place} does not answer with JSON.", "Mend oidc_issuer or oidc_jwks_url."
            )
    for one in reading.defined:
        if isinstance(one.driver, AgentZeroDriver) and not await _listens(one.driver.url):
            slug = one.driver.agent.slug
            yield error(
                "agentzero_unreachable", f"The Agent-Zero of {slug} does not answer.", f"Start {one.driver.url}."
            )


def _port(settings: Settings) -> list[Finding]:
    found: list[Finding] = []
    for name, port in (("port", settings.port), ("grpc_port", settings.grpc_port)):
        if port is None or port <= 0:
            continue
        try:
            family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
            socket.create_server((settings.host, port), family=family).close()
        except OSError as wrong:
            found.append(
                error("port_taken", f"Cannot listen on {settings.host}:{port}: {wrong.strerror}.", f"Set {name}.")
            )
    return found


async def _postgres(settings: Settings) -> AsyncIterator[Finding]:
    try:
        async with asyncio.timeout(ANSWER_S):
            connection = await connect(postgres_url(settings))
    except ConfigurationError as wrong:
        yield error("postgres_url_missing", wrong.message, "Set postgres_url.")
        return
    except (*TROUBLE, TimeoutError, ValueError) as wrong:
        # Its words may hold the address, and that a password.
        yield error(
            "postgres_unreachable", f"PostgreSQL cannot be asked ({type(wrong).__name__}).", "Mend postgres_url."
        )
        return
    try:
        version = connection.get_server_version().major
        before = now_ms()
        theirs = await connection.fetchval("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
        skew = theirs - (before + now_ms()) // 2
        most = int(await connection.fetchval("SHOW max_connections"))
        known = await connection.fetchval("SELECT to_regclass('migrations') IS NOT NULL")
        done = {row[0] for row in await connection.fetch("SELECT id FROM migrations")} if known else set[str]()
    finally:
        await connection.close()
    if version < OLDEST_POSTGRES:
        yield error("postgres_too_old", f"PostgreSQL is {version}.", f"Use {OLDEST_POSTGRES} or newer.")
    if abs(skew) > SKEW_MS:
        yield warning("clock_skew", f"The database's clock differs by {skew / 1000:.1f} s.", "Let both follow NTP.")
    if most < 3 * MAX_CONNECTIONS:
        yield warning(
            "few_connections", f"PostgreSQL takes {most} connections; a replica uses {MAX_CONNECTIONS} and more.",
            "Raise max_connections.",
        )  # fmt: skip
    pending = [one for one in migrations("postgres") if one.id not in done]
    if pending:
        late = all(one.phase == "post" for one in pending)
        advice = "parley migrate --phase post, when no server of the older version is left."
        yield warning(
            "migrations_pending", f"{len(pending)} migrations are missing.",
            advice if late else "parley migrate, or start a server.",
        )  # fmt: skip


async def _redis_answers(url: str) -> bool:
    try:
        from redis.asyncio import Redis
        from redis.exceptions import RedisError
    except ModuleNotFoundError:
        return True
    client = Redis.from_url(url, socket_connect_timeout=ANSWER_S, socket_timeout=ANSWER_S)  # pyright: ignore
    try:
        await client.ping()  # pyright: ignore
    except (RedisError, OSError, ValueError):
        return False
    finally:
        await client.aclose()
    return True


async def _answers(url: str) -> bool:
    try:
        async with open_client(timeout=ANSWER_S) as http:
            reply = await http.get(url)
        return reply.status_code == 200 and isinstance(reply.json(), dict)
    except (httpx2.HTTPError, httpx2.InvalidURL, ReplyTooLarge, ValueError):
        return False


async def _listens(url: str) -> bool:
    try:
        async with open_client(timeout=ANSWER_S) as http, http.stream("GET", url):
            pass
    except ReplyTooLarge:
        return True
    except (httpx2.HTTPError, httpx2.InvalidURL):
        return False
    return True
