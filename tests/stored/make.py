"""Write the stored databases: `python -m tests.stored.make` drives a server of this code on SQLite and on PostgreSQL,
and packs what it leaves behind, with what was told to its clients.

Run it by hand, and only to add what no stored database has yet: the databases stand for those that users have.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2

from parley.testing.databases import bare_database
from parley.testing.processes import until
from parley.testing.receivers import Receiver
from parley.testing.servers import serving
from tests.models.vendors import OpenAi, answer, calling
from tests.stored.agents import asker, greeter
from tests.stored.expected import render, starting, write
from tests.stored.house import ACTIONS, CARD, MCP_HEADERS, THREAD, House, Json, Place, hooked
from tests.stored.packing import pack
from tests.tools.github import TOKEN, GitHubServer, github

MODES = ("plan", "build")
TOOL_CALL: Json = {
    "tool_pack": "coding.v1",
    "mode": "execute",
    "run_id": "run-stored",
    "thread_id": THREAD,
    "manifest": {
        "manifest_version": "coding.integration.v1",
        "integration_id": "github.primary",
        "provider": "github",
        "status": "active",
        "tool_pack": "coding.v1",
        "capabilities": ["get_issue", "get_pull_request", "add_issue_comment"],
        "policy": {"write_operations_mode": "enforce", "default_repository": "octo/hello"},
    },
    "request": {
        "integration_id": "github.primary",
        "operation": "get_issue",
        "repository": "octo/hello",
        "issue_number": 7,
        "run_id": "run-stored",
        "tool_call_id": "call-1",
    },
    "policy": {
        "authorization_id": "auth-stored",
        "authorization_mode": "delegated_budget",
        "budget": {"max_total_sats": 5000},
    },
}
DELIVERY: Json = {
    "event_id": "evt-stored",
    "provider": "resend",
    "delivery_state": "delivered",
    "message_id": "email-1",
    "recipient": "user@example.com",
    "occurred_at": "2026-02-19T18:00:00Z",
    "payload": {"rawType": "email.delivered"},
}


class Maker:
    """`notes` is what clients know at the end: tokens, ids, cursors."""

    def __init__(self, place: Place, receiver: Receiver) -> None:
        self.place = place
        self.receiver = receiver
        self.notes: Json = {"tokens": {}, "runs": {}, "nodes": {}, "documents": {}}
        self._hub: GitHubServer | None = None

    @property
    def runs(self) -> dict[str, str]:
        """By what they are: ids of runs."""
        return self.notes["runs"]

    @asynccontextmanager
    async def _serving(self, *, kill: bool = False, **env: str) -> AsyncIterator[House]:
        assert self._hub is not None
        given = {"PARLEY_GITHUB_API": self._hub.url, "PARLEY_GITHUB_TOKEN": TOKEN, **env}
        async with self.place.serving(self.notes["tokens"], kill=kill, **given) as house:
            house.vendor.replies = [calling(OpenAi, ("id-1", "echo", '{"n": 1}')), answer(OpenAi, "x")]
            yield house

    async def make(self) -> Json:
        async with github() as self._hub:
            await self._keys()
            async with self._serving(PARLEY_KEEP_DAYS="0.00001") as house:
                await self._pruned(house)
            async with self._serving(kill=True) as house:
                await self._broken_off(house)
            async with self._serving(kill=True) as house:
                await self._rescued(house)
                for work in (
                    self._ended,
                    self._waiting,
                    self._forked,
                    self._told,
                    self._documents,
                    self._tools,
                    self._orchestrated,
                    self._runtimes,
                    self._nodes,
                    self._controlled,
                    self._erased,
                    self._operated,
                    self._left,
                ):
                    await work(house)
        return self.notes

    async def _keys(self) -> None:
        for name, more in {
            "ann": (),
            "admin": ("--scope", "admin"),
            "bob": ("--agent", "asker", "--agent", "echo"),
        }.items():
            made = await self.place.parley("keys", "create", name, *more)
            self.notes["tokens"][name] = made["token"]
        await self.place.parley("keys", "create", "brief", "--expires-days", "1")
        await self.place.parley("signing", "rotate")

    async def _pruned(self, house: House) -> None:
        """Runs whose events are forgotten: a snapshot is left."""
        for slug, text in (
            ("echo", "to be pruned"),
            ("breaker", "to be pruned"),
            ("greeter", "pruned"),
            ("files", "p"),
        ):
            await house.send(slug, text)
        made = await house.send("asker", "pruned after an answer")
        await house.send("asker", "yes", task=made["id"])
        self.runs["pruned"] = made["id"]
        conversation = await self._begin(house, "two", "pruned")
        self.place.open.touch()
        made = await house.did(conversation, "orchestrate", "create", "two", message="pruned")
        await house.reached("two", made["result"]["orchestration"]["id"], "completed")
        self.place.open.unlink()

        async def gone() -> bool:
            return "input_required" not in (await house.ask("GET", f"/console/runs/{self.runs['pruned']}/raw")).text

        await until(gone, 200)
        await asyncio.sleep(2)

    async def _broken_off(self, house: House) -> None:
        for slug in ("steady", "fragile", "worker"):
            self.runs[slug] = (await house.send(slug, f"{slug} breaks off", wait=False))["id"]
            await house.reached(slug, self.runs[slug], "working")
        await asyncio.sleep(0.5)

    async def _rescued(self, house: House) -> None:
        await house.reached("fragile", self.runs["fragile"], "failed")
        for slug in ("steady", "worker"):
            await house.reached(slug, self.runs[slug], "working")

    async def _ended(self, house: House) -> None:
        """Runs that have come to their ends, one for each."""
        parts = [
            {"text": "with "},
            {"data": {"n": 1.50}},
            {"url": "https://example.com/a.png", "mediaType": "image/png"},
            {"raw": "AAEC", "filename": "a.bin", "mediaType": "application/x-a"},
        ]
        told = {"parts": parts, "metadata": {"from": "here"}, "extensions": ["urn:example:ext"]}
        self.runs["echo"] = (await house.send("echo", "all kinds of parts", message=told))["id"]
        about = {"referenceTaskIds": [self.runs["echo"]]}
        for slug in ("refuser", "breaker", "boss", "greeter"):
            self.runs[slug] = (await house.send(slug, f"to the {slug}", message=about)).get("id", "")
        self.runs["files"] = (await house.send("files", "large " * 14_000))["id"]
        canceled = (await house.send("worker", "to be canceled", wait=False))["id"]
        await house.rpc("worker", "CancelTask", {"id": canceled, "metadata": {"reason": "enough"}})
        await house.reached("worker", canceled, "canceled")
        traced = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Idempotency-Key": "key-1"}
        message = {"messageId": "m-traced", "role": "ROLE_USER", "parts": [{"text": "traced"}]}
        made = await house.post("/agents/echo/message:send", {"message": message}, "bob", traced)
        self.runs["bobs"] = made["task"]["id"]

    async def _waiting(self, house: House) -> None:
        """Runs that wait for an answer, for a slot, or for more than one input."""
        for name, slug in (
            ("asks", "asker"),
            ("again", "asker"),
            ("auth", "vault"),
            ("mirror", "mirror"),
            ("org", "org"),
            ("chat", "chat"),
        ):
            text = "Fix the bug in /nonexistent/critical/app.py" if slug == "org" else f"question of {name}"
            self.runs[name] = (await house.send(slug, text))["id"]
            await house.reached(slug, self.runs[name], "input_required", "auth_required")
        self.runs["bob asks"] = (await house.send("asker", "question of bob", "bob"))["id"]
        for number in range(2):
            self.runs[f"narrow {number}"] = (await house.send("narrow", f"narrow {number}", wait=False))["id"]
        await house.reached("narrow", self.runs["narrow 0"], "working")
        await house.send("worker", "one more input", task=self.runs["worker"], wait=False)

    async def _forked(self, house: House) -> None:
        """Copies of runs: of one that asked another agent, and of one that asked its caller."""
        for name, slug, body in (
            ("fork", "boss", {}),
            (
                "fork asks",
                "asker",
                {"message": {"messageId": "f", "role": "ROLE_USER", "parts": [{"text": "in the fork"}]}},
            ),
        ):
            of = self.runs["boss"] if slug == "boss" else self.runs["again"]
            self.runs[name] = (await house.post(f"/agents/{slug}/tasks/{of}:fork", body, "ann"))["id"]
            await house.reached(slug, self.runs[name], "completed")

    async def _told(self, house: House) -> None:
        """Hooks of every state: live and with secrets, finished, and one that nobody takes."""
        secret = {
            "url": self.receiver.url("/live"),
            "token": "hook-token",
            "authentication": {"scheme": "Bearer", "credentials": "hook-credentials"},
        }
        for name, path in (("hooked", "/live"), ("ended hook", "/ended"), ("dead hook", "/dead")):
            config = {**secret, "url": self.receiver.url(path)}
            self.receiver.always["/dead"] = 410
            made = await house.send("asker", name, taskPushNotificationConfig=config)
            self.runs[name] = made["id"]
            if name == "ended hook":
                await house.send("asker", "enough", task=made["id"])
        await until(lambda: bool(self.receiver.on("/live")) and len(self.receiver.on("/ended")) > 2, 20)
        await until(lambda: bool(self.receiver.on("/dead")), 20)
        more = {"id": "second", "url": self.receiver.url("/second")}
        await house.post(f"/agents/asker/tasks/{self.runs['hooked']}/pushNotificationConfigs", more, "ann")

    async def _begin(self, house: House, agent: str, id_: str = "") -> str:
        body = {"agentSlug": agent, **({"id": id_} if id_ else {})}
        return (await house.post(f"{ACTIONS}/conversations", body, "ann"))["conversationId"]

    async def _documents(self, house: House) -> None:
        """Plans and deliverables with a version of every provenance, and a conversation that was deleted."""
        conversation = self.notes["documents"]["writer"] = await self._begin(
            house, "writer", "conversation-of-documents"
        )
        for mode in MODES:
            first = await house.did(conversation, mode, "create", "writer", message="Write about tides")
            edited = await house.did(
                conversation, mode, "edit", "writer", editedContent="# Tides\n\nThey come.", editNotes="less"
            )
            await house.did(conversation, mode, "copy_version", "writer", versionId=first["taskId"])
            await house.did(
                conversation,
                mode,
                "merge_versions",
                "writer",
                versionIds=[first["taskId"], edited["taskId"]],
                mergePrompt="Both",
            )
            await house.did(conversation, mode, "set_current", "writer", versionId=first["taskId"])
            self.notes["documents"][mode] = first["taskId"]
        await house.did(conversation, "build", "rerun", "writer", message="Again", rerunConfig={"temperature": 0.5})
        await house.act(conversation, "plan", "read", "writer", versionId="there-is-none")
        await house.did(conversation, "converse", "export_conversation", "writer", format="json")
        for kept in (False, True):
            other = await self._begin(house, "writer")
            await house.did(other, "plan", "create", "writer", message="Soon gone")
            await house.did(other, "converse", "delete_conversation", "writer", confirm=True, deleteArtifacts=not kept)

    async def _tools(self, house: House) -> None:
        """Calls of tools that succeeded, failed, and were under way."""
        conversation = self.notes["documents"]["caller"] = await self._begin(house, "caller", "conversation-of-tools")
        made = await house.did(
            conversation, "tool", "execute", "caller", toolName="wild/echo", input={"n": 1.50, "token": "hush"}
        )
        self.notes["execution"] = made["taskId"]
        await house.act(conversation, "tool", "execute", "caller", toolName="wild/refuse", input={"why": "no"})
        asyncio.get_running_loop().create_task(self._hanging(house, conversation))

    async def _hanging(self, house: House, conversation: str) -> None:
        try:
            await house.act(conversation, "tool", "execute", "caller", toolName="wild/hang", input={})
        except httpx2.TransportError:
            return

    async def _orchestrated(self, house: House) -> None:
        """Orchestrations: finished, failed, tried again, paused, at a checkpoint, canceled, and under way."""
        for name, agent in (
            ("checkpoint", "quick"),
            ("finished", "quick"),
            ("failed", "failing"),
            ("paused", "two"),
            ("running", "two"),
            ("canceled", "two"),
        ):
            conversation = await self._begin(house, agent, f"orchestration-{name}")
            made = await house.did(conversation, "orchestrate", "create", agent, wait=False, message=f"Go {name}")
            self.runs[name] = made["result"]["orchestration"]["id"] if "result" in made else made["taskId"]
            if agent == "quick":
                await house.reached(agent, self.runs[name], "input_required")
            if name == "finished":
                await house.send(agent, "yes", task=self.runs[name])
            if name == "failed":
                await house.reached(agent, self.runs[name], "failed", "input_required")
                await house.act(conversation, "orchestrate", "retry_step", agent, stepId="a")
                await house.reached(agent, self.runs[name], "failed", "input_required")
            if agent == "two":
                await house.reached(agent, self.runs[name], "working")
                await until(lambda conversation=conversation: self._step_runs(house, conversation), 20)
            if name == "paused":
                await house.did(conversation, "orchestrate", "pause", agent)
                await house.did(conversation, "orchestrate", "resume", agent)
                await house.did(conversation, "orchestrate", "pause", agent)
            if name == "canceled":
                await house.did(conversation, "orchestrate", "cancel", agent)

    async def _step_runs(self, house: House, conversation: str) -> bool:
        shown = await house.did(conversation, "orchestrate", "read", "two")
        return any(step["status"] == "running" for step in shown["result"]["orchestration"]["plan"]["steps"])

    async def _runtimes(self, house: House) -> None:
        """A paired runtime that holds one task and has ended another; one that was replaced; and a code nobody used."""
        for _ in range(2):
            code = await house.post("/admin/agents/far/pairing", {})
            described = {"pairing_token": code["pairing_token"], "runtime_name": "stored", "runtime_version": "1"}
            attached = await house.post("/agent-runtimes/runtime/attach-via-pairing", described, "")
        self.notes["tokens"]["runtime"] = attached["runtime_token"]
        await house.post("/admin/agents/far/pairing", {})
        token = {"X-Runtime-Token": attached["runtime_token"], "X-Runtime-Instance": "process-1"}
        for name in ("far ended", "far held", "far queued"):
            self.runs[name] = (await house.send("far", name, wait=False))["id"]
        for name in ("far ended", "far held"):
            path = "/agent-accounts/far/task-runs/pull"
            pulled = await house.post(path, {"wait_ms": 5000, "limit": 1}, "", token)
            (work,) = pulled["task_runs"]
            lease = {"lease_id": work["lease_id"]}
            await house.post(f"/task-runs/{work['id']}/progress", {**lease, "message": "on it"}, "", token)
            if name == "far ended":
                await house.post(
                    f"/task-runs/{work['id']}/complete", {**lease, "output": {"text": "from afar"}}, "", token
                )
        await house.post("/agent-runtimes/runtime/heartbeat", {}, "", token)

    async def _nodes(self, house: House) -> None:
        """A tree of nodes with heartbeats, activities and delegations; one was moved, one removed, one is degraded."""
        with tempfile.TemporaryDirectory() as folder:
            async with serving(Path(folder), [asker, greeter], store="memory", auth="none") as far:
                await self._tree(house, far.url)

    async def _tree(self, house: House, far: str) -> None:
        nodes: dict[str, Json] = self.notes["nodes"]
        for name, parent in (("top", ""), ("low", "top"), ("asks", "top"), ("sick", "low"), ("removed", "top")):
            parent_id = nodes[parent]["id"] if parent else None
            made = await house.post("/workspaces", {"name": name, "role": "works", "tier": 2, "parent_id": parent_id})
            url = f"{far}/agents/{'asker' if name == 'asks' else 'greeter'}"
            registered = await house.post(
                "/registry/register",
                {"id": made["id"], "url": url, "agent_card": CARD},
                "",
                {"Authorization": f"Bearer {made['registration_token']}", "X-Workspace-ID": made["id"]},
            )
            nodes[name] = {"id": made["id"], "token": registered.get("auth_token", made["registration_token"])}
        for name, rate in (("top", 0.0), ("low", 0.01), ("sick", 0.9)):
            beat = {
                "workspace_id": nodes[name]["id"],
                "error_rate": rate,
                "uptime_seconds": 5,
                "active_tasks": int(name == "sick"),
                "current_task": "Sum",
                "monthly_spend": 12,
                "sample_error": "none",
            }
            await self._as(house, name, "/registry/heartbeat", beat)
        await house.ask(
            "PATCH", f"/workspaces/{nodes['sick']['id']}", {"parent_id": nodes["top"]["id"], "name": "Sicker"}
        )
        await house.ask("DELETE", f"/workspaces/{nodes['removed']['id']}?confirm=true")
        top, low, asks = (nodes[name]["id"] for name in ("top", "low", "asks"))
        await self._as(
            house, "top", f"/workspaces/{top}/activity", {"activity_type": "agent_log", "summary": "Looked."}
        )
        said = {"messageId": "n", "role": "ROLE_USER", "parts": [{"text": "proxied"}]}
        call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": said}}
        await self._as(house, "top", f"/workspaces/{low}/a2a", call)
        for name, target in (("delegated", low), ("delegation asks", asks)):
            made = await self._as(house, "top", f"/workspaces/{top}/delegate", {"target_id": target, "task": name})
            nodes["top"][name] = made["delegation_id"]
            path = f"/workspaces/{top}/delegations/{made['delegation_id']}"
            await until(lambda path=path, target=target: self._moved(house, path, target == low), 20)
        for id_ in ("by-itself", "told-of"):
            recorded = {"target_id": low, "task": "By itself", "delegation_id": id_}
            await self._as(house, "top", f"/workspaces/{top}/delegations/record", recorded)
        await self._as(house, "top", f"/workspaces/{top}/delegations/told-of/update", {"status": "completed"})

    async def _moved(self, house: House, path: str, ends: bool) -> bool:
        status = (await house.get(path))["status"]
        return status == "completed" if ends else status in ("received", "in_progress")

    async def _as(self, house: House, node: str, path: str, body: Json) -> Json:
        of = self.notes["nodes"][node]
        return await house.post(path, body, "", {"Authorization": f"Bearer {of['token']}", "X-Workspace-ID": of["id"]})

    async def _controlled(self, house: House) -> None:
        """Open runs of the control plane: one closed, one that waits; frames, deliveries and calls of tools."""
        async with house.control() as control:
            for run in ("run-stored", "run-closed"):
                await control.create_run(THREAD, run=run, agent="keeper")
                await control.frame(run, THREAD, payload={"text": "first", "note": "n"}, id_=f"frame-{run}")
                self.runs[run] = run
            await house.reached("keeper", "run-closed", "input_required")
            await control.finish("run-closed", THREAD)
            await house.reached("keeper", "run-closed", "completed")
            await control.frame("run-closed", THREAD, payload={"text": "too late"}, id_="frame-late")
            # Closed while it works, so that it is noted before it ends.
            await control.create_run(THREAD, run="run-closing", agent="worker")
            self.runs["run-closing"] = "run-closing"
            await control.frame("run-closing", THREAD, payload={"text": "closing"}, id_="frame-closing")
            await house.reached("worker", "run-closing", "working")
            await control.finish("run-closing", THREAD)
            await control.deliver(DELIVERY)
            self.notes["tool call"] = await control.execute(TOOL_CALL)
            write = {
                **TOOL_CALL["request"],
                "operation": "add_issue_comment",
                "body": "Thanks",
                "tool_call_id": "call-2",
                "write_approved": True,
            }
            await control.execute({**TOOL_CALL, "request": write})
            assert self._hub is not None
            await house.reached("keeper", "run-stored", "input_required")

    async def _erased(self, house: House) -> None:
        """A run whose owner deleted it: only its place in the chain is left."""
        conversation = await self._begin(house, "failing", "orchestration-erased")
        made = await house.did(conversation, "orchestrate", "create", "failing", message="Go away")
        self.runs["erased"] = made["result"]["orchestration"]["id"]
        await house.reached("failing", self.runs["erased"], "failed", "input_required")
        await house.act(conversation, "orchestrate", "delete", "failing", confirm=True)

    async def _operated(self, house: House) -> None:
        """An operator's data: an agent added in the console; the session is recorded."""
        cookie, csrf = await house.enter()
        form = {"csrf": csrf, "name": "Added", "slug": "added", "description": "Added while the server ran."}
        reply = await house.ask("POST", "/console/agents/new/pairing", who="", headers=cookie, form=form)
        assert reply.status_code == 303, reply.text
        self.notes["session"] = cookie["Cookie"]
        self.runs["added"] = (await house.send("added", "for the added one", wait=False))["id"]

    async def _left(self, house: House) -> None:
        """A tool call by MCP whose client is gone, with the mark by which it goes on; then nothing for a moment."""
        call = {"name": "worker", "arguments": {"message": "by mcp"}, "_meta": {"progressToken": "p"}}
        body = {"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": call}
        headers = {**MCP_HEADERS, "Authorization": f"Bearer {house.tokens['ann']}"}
        async with house.http.stream("POST", "/mcp", json=body, headers=headers) as reply:
            async for line in reply.aiter_lines():
                if line.startswith("id: "):
                    self.notes["mark"] = line[4:]
                    break
        await asyncio.sleep(1)


async def make(kind: str, folder: Path, url: str = "") -> None:
    place = Place.made(folder, url)
    async with hooked() as receiver:
        notes = await Maker(place, receiver).make()
    await pack(kind, place, notes)
    print(f"{kind}: {len(notes['runs'])} runs are named", file=sys.stderr)


async def main() -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        await make("sqlite", Path(folder) / "sqlite")
        with starting(Path(folder)) as server:
            await make("postgres", Path(folder) / "postgres", await bare_database(server))
    for kind in ("sqlite", "postgres"):
        write(kind, await render(kind, {}))


if __name__ == "__main__":
    asyncio.run(main())
