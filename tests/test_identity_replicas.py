"""Keys are known, and signatures hold, wherever a request arrives."""

import asyncio
from pathlib import Path

import httpx2
import pytest

from parley.records import Records
from parley.security.cards import verify_card
from parley.security.keys import ApiKeys
from parley.security.secrets import new_key
from parley.stores.postgres import open_pool
from parley.stores.records import PostgresRecords
from parley.testing.processes import ServerProcess, replicas

AGENTS = [Path(__file__).parent / "replica_agents.py"]
CARD = "/agents/walker/.well-known/agent-card.json"

pytestmark = pytest.mark.slow


async def admin_token(database: str) -> str:
    pool = await open_pool(database)
    records: Records = PostgresRecords(pool)
    _, token = await ApiKeys(records).create("root", ["admin"])
    await pool.close()
    return token


async def status(http: httpx2.AsyncClient, server: ServerProcess, token: str) -> int:
    return (await http.get(f"{server.url}/admin/whoami", headers={"X-API-Key": token})).status_code


async def test_a_key_made_and_revoked_on_one_replica_counts_on_the_other(tmp_path: Path, database: str) -> None:
    admin = {"X-API-Key": await admin_token(database)}
    async with (
        replicas(2, AGENTS, tmp_path, database, PARLEY_AUTH="required") as (a, b),
        httpx2.AsyncClient(timeout=30) as http,
    ):
        made = (await http.post(f"{a.url}/admin/keys", headers=admin, json={"name": "ci"})).json()
        assert [await status(http, server, made["token"]) for server in (a, b)] == [200, 200]
        assert (await http.delete(f"{a.url}/admin/keys/ci", headers=admin)).status_code == 200
        assert await status(http, a, made["token"]) == 401
        await asyncio.sleep(2.0)
        assert await status(http, b, made["token"]) == 401


@pytest.mark.parametrize("shared", [True, False], ids=["one key file", "a key file each"])
async def test_replicas_that_start_together_sign_what_either_can_prove(
    tmp_path: Path, database: str, shared: bool
) -> None:
    file = tmp_path / "secret.key"
    file.write_text(new_key())
    file.chmod(0o600)
    env = {"PARLEY_SECRET_KEY_FILE": str(file)} if shared else {}
    async with replicas(2, AGENTS, tmp_path, database, **env) as (a, b), httpx2.AsyncClient(timeout=30) as http:
        cards = [reply.json() for reply in await asyncio.gather(*(http.get(one.url + CARD) for one in (a, b) * 3))]
        for server in (a, b):
            jwks = (await http.get(f"{server.url}/.well-known/jwks.json")).json()
            assert sum(key["alg"] == "ES256" for key in jwks["keys"]) <= 2
            assert all(verify_card(card, jwks) for card in cards)
