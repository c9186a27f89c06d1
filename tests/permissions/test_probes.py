"""Other users' things do not exist, on any face: each answer is byte by byte the answer for an unknown id, for every id
that any operation takes and for every caller. Exceptions that a contract demands are listed here."""

import asyncio
import contextlib
import json
import re
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf import json_format

from parley.faces.a2a.grpc import SERVICES
from parley.faces.a2a.jsonrpc import METHODS
from parley.faces.actions.table import ACTIONS
from parley.faces.mcp.calls import Mark
from tests.faces.a2a.test_grpc import address_of
from tests.faces.mcp.wire import OLD, request
from tests.faces.wires import TASK_OPERATIONS
from tests.permissions.belongings import ANN, BOB, MODES, Belongings, act, drivers, furnish, unknown_like
from tests.permissions.house import Json, open_house, signed
from tests.permissions.ids import ids_of, read_names
from tests.permissions.probes import APART, FORM_WORDS, FORMS, PLAIN, PLAIN_AT, RUNS, Probe, about, probe_for
from tests.permissions.requests import ruled, version_for
from tests.permissions.table import KNOWN
from tests.permissions.test_matrix import grpc_params
from tests.permissions.walk import asked_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

OTHERS = (BOB, "nobody", "reader", "oidc", "signed2", "guest", "runtime2", "pair", "stranger")
"""Everybody who could ask and is not Ann, her runtime, her node or an administrator."""
VERSIONS = ("plan version", "build version")
NONE = str(uuid.uuid4())
BEGUN = frozenset(f"002 {one.mode}.{one.name}" for one in ACTIONS if one.begins)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def own(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Belongings]:
    folder = tmp_path_factory.mktemp("probes")
    async with open_house(folder / "data", *drivers(folder)) as house:
        yield await furnish(house)


def probes(own: Belongings) -> Iterator[Probe]:
    app = own.house.server.app
    for asked in asked_of(app):
        for name in ids_of(app, asked):
            if isinstance(probe := probe_for(asked, name), Probe):
                yield probe


async def test_every_id_that_anything_takes_has_a_probe(own: Belongings) -> None:
    app = own.house.server.app
    taken = [(asked, name) for asked in asked_of(app) for name in ids_of(app, asked)]
    missing = [f"{asked}: {name}" for asked, name in taken if probe_for(asked, name) is None]
    assert not missing, (
        "Say in tests/permissions/probes.py whose these could be, or why they are nobody's:\n" + "\n".join(missing)
    )
    stale = sorted({*(set(APART) | set(PLAIN_AT)) - set(taken), *set(PLAIN) - {name for _, name in taken}}, key=str)
    assert not stale, f"tests/permissions/probes.py speaks of what is not taken any more: {stale}"
    unknown = read_names() ^ (FORMS.keys() | FORM_WORDS)
    assert not unknown, f"FORMS and FORM_WORDS in tests/permissions/probes.py differ from what is read in: {unknown}"
    whats = {what for probe in probes(own) for what in probe.whats}
    assert whats <= own.ids.keys()
    assert len(list(probes(own))) > 250


async def complaint(own: Belongings, probe: Probe, who: str, what: str) -> str:
    """Description of what is wrong with an answer; empty if nothing is."""
    near = {"near": own.house.nodes["child"].id, "lease": own.ids["lease"]}
    mine = {**own.own.get(who, {}), **near}
    if what == "spare":
        await own.spare()
    theirs, unknown = await own.answers(who, what, lambda id_: probe.ask(id_, mine))
    if probe.asked in BEGUN and probe.name == "conversationId":
        # It begins one of their own by this name; how far that got in the meantime may differ.
        theirs, unknown = theirs[:1], unknown[:1]
    if theirs == unknown:
        return ""
    return f"{probe.asked}, {probe.name} of {what}, by {who}: {difference(str(theirs), str(unknown))}"


def difference(one: str, two: str) -> str:
    """Where two answers part, with a few words around it."""
    at = next((place for place, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
    begin = max(0, at - 60)
    return f"\n  …{one[begin : at + 100]}…\n  …{two[begin : at + 100]}…"


def askers(probe: Probe) -> list[tuple[str, str]]:
    """Bob about each of the things that it could be, everybody else about the first."""
    return [*((BOB, what) for what in probe.whats), *((who, probe.whats[0]) for who in OTHERS[1:])]


@pytest.mark.slow
async def test_somebody_elses_id_is_an_unknown_one_to_everybody(own: Belongings) -> None:
    wrong: list[str] = []
    for probe in probes(own):
        if probe.asked.startswith("gRPC"):
            continue
        rule = ruled(probe.asked)
        assert rule is not None
        for who, what in askers(probe):
            if probe.whats == ("node",) and who in rule.who | {BOB, "signed2"} and KNOWN & rule.who >= {"reader"}:
                # Users may see the nodes that there are.
                continue
            if said := await complaint(own, probe, who, what):
                wrong.append(said)
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong)


IN_FORMS: dict[str, tuple[tuple[str, ...], Any]] = {
    "id": (RUNS, lambda id_, mine: ("GET", f"/console/runs?id={id_}")),
    "conversation": (("conversation", "context"), lambda id_, mine: ("GET", f"/console/runs?conversation={id_}")),
    "other": (RUNS, lambda id_, mine: ("GET", f"/console/runs/{id_}/compare?other={id_}")),
    "run of a bulk action": (RUNS, lambda id_, mine: ("POST", "/console/runs/cancel", {f"run.{id_}": "1"})),
    "run of a bulk retry": (RUNS, lambda id_, mine: ("POST", "/console/runs/retry", {f"run.{id_}": "1"})),
    "agent": (("agent",), lambda id_, mine: ("POST", "/console/conversations", {"agent": id_, "text": "hi"})),
    "agent of an orchestration": (("agent",), lambda id_, mine: ("POST", "/console/orchestrations", {"agent": id_})),
    "agent of a list": (("agent",), lambda id_, mine: ("GET", f"/console/runs?agent={id_}")),
    "owner": (("conversation",), lambda id_, mine: ("GET", f"/console/conversations/{id_}?owner=service:{ANN}")),
    "owner of versions": (
        ("conversation",),
        lambda id_, mine: ("GET", f"/console/conversations/{id_}/difference?kind=plan&owner=service:{ANN}"),
    ),
    "message": (RUNS, lambda id_, mine: ("POST", f"{mine}/resend", {"message": f"{id_}.2", "text": "hi"})),
    "plan": (VERSIONS, lambda id_, mine: ("GET", f"{mine}?plan={id_}")),
    "deliverable": (VERSIONS, lambda id_, mine: ("GET", f"{mine}?deliverable={id_}")),
    "from": (VERSIONS, lambda id_, mine: ("GET", f"{mine}/difference?kind=plan&from={id_}&to={id_}")),
    "merge-": (
        VERSIONS,
        lambda id_, mine: ("POST", f"{mine}/merge_versions", {"kind": "plan", f"merge-{id_}": "", f"merge-{NONE}": ""}),
    ),
    **{
        f"version of {deed}": (
            VERSIONS,
            lambda id_, mine, deed=deed: (
                "POST", f"{mine}/{deed}", {"version": id_, "kind": "deliverable" if deed == "rerun" else "plan"}
            ),
        )
        for deed in ("set_current", "copy_version", "delete_version", "rerun")
    },
}  # fmt: skip
"""Form and query fields of the console, sent by Bob in his own conversation."""


@pytest.mark.parametrize("name", IN_FORMS)
async def test_somebody_elses_id_in_a_form_or_a_query_is_an_unknown_one(own: Belongings, name: str) -> None:
    whats, ask = IN_FORMS[name]
    mine = f"/console/conversations/{own.own[BOB]['conversation']}"
    for what in whats:
        theirs, unknown = await own.answers(BOB, what, lambda id_: ask(id_, mine))
        assert theirs == unknown, difference(str(theirs), str(unknown))
        assert theirs[0] != 403, "the form was not taken for one of ours"


async def test_a_key_of_somebody_else_leads_to_nothing_of_theirs(own: Belongings) -> None:
    """Idempotency keys are each principal's own."""
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    headers = {"A2A-Version": "1.0", "Idempotency-Key": "the-same"}
    tasks: dict[str, str] = {}
    for who in (ANN, BOB, ANN):
        reply = await own.house.ask(who, "POST", "/agents/echo/message:send", {"message": message}, headers)
        assert tasks.setdefault(who, reply.json()["task"]["id"]) == reply.json()["task"]["id"]
    assert tasks[ANN] != tasks[BOB]


@pytest.mark.parametrize("what", RUNS)
async def test_a_stream_of_somebody_elses_call_cannot_be_resumed(own: Belongings, what: str) -> None:
    theirs, unknown = await own.answers(
        BOB, what, lambda id_: ("GET", "/mcp", None, {**OLD, "Last-Event-ID": str(Mark(id_, 0, 0, 1, None))})
    )
    assert theirs == unknown
    assert "a stream" not in theirs[1]


@pytest.mark.parametrize("method", [method for method, (_, one) in METHODS.items() if one in TASK_OPERATIONS])
async def test_somebody_elses_task_is_unknown_at_the_root_and_through_a_node(own: Belongings, method: str) -> None:
    dialect, operation = METHODS[method]

    def asked(base: str) -> Any:
        def ask(id_: str) -> Any:
            _, _, body = about(f"JSON-RPC {dialect.version}", operation, "id", id_, {})
            return "POST", base, {**body, "method": method}, {"A2A-Version": dialect.version}

        return ask

    through = f"/workspaces/{own.house.nodes['child'].id}/a2a"
    for base, who, whats in (("/", BOB, RUNS), (through, BOB, RUNS), (through, "stranger", ("delegation", "task"))):
        for what in whats:
            theirs, unknown = await own.answers(who, what, asked(base))
            assert theirs == unknown, (base, who, what, difference(str(theirs), str(unknown)))
            assert theirs[0] == 404 or "TASK_NOT_FOUND" in theirs[1] or "-32001" in theirs[1], theirs


async def test_over_grpc_somebody_elses_task_is_an_unknown_one(own: Belongings) -> None:
    wrong: list[str] = []
    async with grpc.aio.insecure_channel(await address_of(own.house.server)) as channel:
        for probe in probes(own):
            service, _, method = probe.asked.removeprefix("gRPC ").rpartition("/")
            if not probe.asked.startswith("gRPC") or probe.name not in ("id", "taskId"):
                continue
            if SERVICES[service][1][method].operation not in TASK_OPERATIONS:
                continue
            for who, what in ((BOB, "task"), (BOB, "delegation"), (BOB, "run"), ("reader", "task"), ("oidc", "task")):
                ids = own.ids[what], unknown_like(own.ids[what])
                theirs, unknown = [await said(channel, service, method, id_, own.house.headers(who)) for id_ in ids]
                if theirs != unknown or "OK" in theirs:
                    wrong.append(f"{probe.asked}, {what} by {who}: {theirs} and {unknown}")
    assert not wrong, "\n".join(wrong)


async def said(channel: grpc.aio.Channel, service: str, method: str, id_: str, headers: dict[str, str]) -> str:
    """Complete outcome of a call."""
    rpc = SERVICES[service][1][method]
    sent = json_format.ParseDict(grpc_params(service, rpc.operation, id_), rpc.request())
    metadata = (("tenant", "echo"), version_for(service), *((name.lower(), value) for name, value in headers.items()))
    streams = rpc.operation in ("stream", "subscribe")
    opened = (channel.unary_stream if streams else channel.unary_unary)(f"/{service}/{method}")
    call = opened(sent.SerializeToString(), metadata=metadata, timeout=10)
    if streams:
        with contextlib.suppress(grpc.aio.AioRpcError):
            await call.read()
        if not call.done():
            call.cancel()
    code, details, trailing = await call.code(), await call.details(), await call.trailing_metadata()
    return f"{code.name} {details} {tuple(trailing)}".replace(id_, "ID")


LAST = ("prefix", "delete_version", "orchestrate.delete", r"/(complete|fail|release)", "DELETE", "delete")
"""After these there is less to ask about, so they come in this order when all others have been asked."""
ALIKE = {
    "referenceTaskIds": "kept as it is said; not looked up",
    "target_id": "a node may talk to itself, and to none that is not there",
    "GET /console/organisation/{slug}": "Ann's agent is no organisation",
    "GET /console/organisation/{slug}/now": "Ann's agent is no organisation",
}
WITHIN = re.compile("agentSlug|version|executionId|orchestrationId|.*[vV]ersionIds?")


@pytest.mark.slow
async def test_the_owner_is_answered_otherwise(own: Belongings) -> None:
    """Or else the probes would ask for what nobody could have. What only administrators, signatures or links may ask
    for is somebody's in another way."""
    anns = await furnish(own.house)
    alike: list[str] = []
    for probe in sorted(probes(anns), key=when):
        rule = ruled(probe.asked)
        assert rule is not None
        owner = next((who for who in ("runtime", "node", ANN) if who in rule.who), "")
        if owner == "node" and ANN in rule.who and "node" not in probe.whats:
            owner = ANN
        skipped = {*probe.whats} & {"spare", "twin"} or {probe.name, probe.asked} & {*ALIKE}
        if not owner or skipped or probe.asked.startswith("gRPC"):
            continue
        if not await otherwise(anns, probe, owner):
            alike.append(f"{probe.asked}, {probe.name} by {owner}")
        if "/tokens" in probe.asked:
            await own.house.renew()
    assert not alike, f"{len(alike)}:\n" + "\n".join(alike)


def when(probe: Probe) -> tuple[int, bool]:
    place = next((number for number, word in enumerate(LAST, 1) if re.search(word, probe.asked)), 0)
    return place, probe.name in ("id", "conversationId")


async def otherwise(anns: Belongings, probe: Probe, owner: str) -> bool:
    """True if the owner's answer about one of these differs from the answer for an unknown id."""
    mine = {**anns.own.get(owner, {}), "lease": anns.ids["lease"], "task": anns.ids["task"]}
    if WITHIN.fullmatch(probe.name):
        mine["conversation"] = anns.ids["conversation"]
    for what in probe.whats:
        theirs, unknown = await anns.answers(owner, what, lambda id_: probe.ask(id_, mine))
        if theirs != unknown:
            return True
    return False


def mcp(method: str, **params: Any) -> tuple[str, str, Json, dict[str, str]]:
    return "POST", "/mcp", request(method, **params), {"Accept": "application/json"}


NOBODYS = ("far agent", "hook", "thread", "spare", "referred", "twin")
"""Ids that every caller may know, or that callers choose themselves."""


async def test_lists_hold_nothing_of_anybody_else(own: Belongings) -> None:
    pages = ("runs", "inbox", "conversations", "orchestrations", "agents", "organisation")
    shown = [
        *[await own.house.ask(BOB, "GET", f"/console/{page}") for page in pages],
        await own.house.ask(BOB, *mcp("resources/list")),
        await own.house.ask(BOB, *mcp("tools/list")),
        await own.house.ask(BOB, "GET", "/.well-known/ai-catalog.json"),
        await own.house.ask(BOB, "GET", "/agents/echo/tasks", None, {"A2A-Version": "1.0"}),
        await own.house.ask("stranger", "GET", f"/workspaces/{own.own['stranger']['node']}/delegations"),
    ]
    for reply in shown:
        assert reply.status_code == 200
        assert not [what for what, id_ in own.ids.items() if id_ in reply.text and what not in NOBODYS]


async def test_another_runtimes_work_cannot_be_kept_alive_or_asked_about(own: Belongings) -> None:
    held = {"task_run_id": own.ids["far task"], "lease_id": own.ids["lease"]}
    for path, body in (("heartbeat", {"task_runs": [held]}), ("control", {"task_run_ids": [own.ids["far task"]]})):
        reply = await own.house.ask("runtime2", "POST", f"/agent-runtimes/runtime/{path}", body)
        assert reply.json()["lost_task_run_ids"] == [own.ids["far task"]]
        assert not reply.json().get("task_runs")


async def test_nodes_out_of_reach_are_told_apart_only_where_their_contract_wants_it(own: Belongings) -> None:
    """404 for what is not there, 403 for what one may not talk to: 004, in discovery and in the proxy."""
    body = {"method": "message/send", "params": {"message": {"role": "user", "parts": []}}}
    for ask in (
        lambda id_: ("GET", f"/registry/discover/{id_}"),
        lambda id_: ("POST", f"/workspaces/{id_}/a2a", body),
    ):
        theirs, unknown = await own.answers("stranger", "node", ask)
        assert (theirs[0], unknown[0]) == (403, 404)


CONTROLS: dict[str, tuple[str, Json | None]] = {
    "snapshot": ("GET", None), "stream": ("GET", None),
    "frames": ("POST", {"frame_id": "f", "type": "user.message", "payload": {"text": "hi"}}), "cancel": ("POST", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTROLS)
async def test_another_principals_run_is_refused_as_contract_003_says(own: Belongings, name: str) -> None:
    """A caller that names run and thread gets 403; a caller with a wrong thread learns nothing."""
    method, body = CONTROLS[name]

    async def asked(run: str, thread: str) -> tuple[int, Any]:
        path, content = f"/internal/v1/runs/{run}/{name}", body
        if body is None:
            path += f"?thread_id={thread}"
        else:
            content = {**body, "thread_id": thread}
        headers = signed(user_id=43, run_id=run, thread_id=thread)
        reply = await own.house.ask("nobody", method, path, content, headers)
        return reply.status_code, reply.json()

    run, thread = own.ids["run"], own.ids["thread"]
    assert (await asked(run, thread))[0] == 403
    assert await asked(run, "another") == await asked(f"run-{uuid.uuid4()}", "another")
    assert (await asked(run, "another"))[0] == 404


async def test_a_tool_call_for_another_principals_run_is_not_on_its_record(own: Belongings) -> None:
    body = {"tool_pack": "coding.v1", "manifest": {}, "request": {}, "run_id": own.ids["run"]}
    body["thread_id"] = own.ids["thread"]
    headers = signed(user_id=43, run_id=own.ids["run"], thread_id=own.ids["thread"])
    reply = await own.house.ask("nobody", "POST", "/internal/v1/tools/execute", body, headers)
    assert reply.status_code in (403, 422), reply.text


async def test_ann_has_everything_still(own: Belongings) -> None:
    house = own.house
    kept = await house.ask(ANN, "GET", f"/agents/echo/tasks/{own.ids['task']}", None, {"A2A-Version": "1.0"})
    assert kept.json()["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert [one["role"] for one in kept.json()["history"]].count("ROLE_USER") == 1
    for mode in ("plan", "build"):
        read = await act(house, ANN, own.ids["conversation"], mode, "read")
        assert own.ids[f"{mode} version"] in json.dumps(read)
    await asyncio.wait_for(house.ask(ANN, "GET", f"{MODES}/tasks/{own.ids['execution']}"), 5)
