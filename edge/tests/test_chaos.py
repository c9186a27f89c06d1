"""Everything at once: faults on every call, and a runtime killed again and again. Every task still ends, once."""

import asyncio
import json
import random
import time
from pathlib import Path

import pytest

from edge.tests.conftest import write_profile
from edge.tests.platform import Fault, Platform, Run
from edge.tests.programs import local_agent, runtime
from edge.tests.wire import Asked, Said

TASKS = 120
ENDINGS = ("/pull", "/heartbeat", "/control", "/artifacts", "/complete", "/fail", "/release")


class Unreliable(Platform):
    """Now and then a call is not answered, or answered with a fault, before or after it had its effect."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(lease_s=1.0, heartbeat_s=0.3)
        self._chance = chance
        self.quiet = False

    def _fault(self, path: str) -> Fault | None:
        if self.quiet or not path.endswith(ENDINGS) or self._chance.random() > 0.15:
            return None
        return Fault(path, 1, status=self._chance.choice([0, 0, 502, 503]), after=self._chance.random() < 0.5)


async def expire(platform: Platform) -> None:
    """What the platform does by itself: a lease that ran out puts its task back."""
    while True:
        await asyncio.sleep(0.1)
        for run in platform.runs.values():
            if run.state == "claimed" and run.lease_until < time.time():
                platform.expire(run)


def ended(run: Run) -> bool:
    return run.state in ("completed", "failed")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [6, 7])
async def test_every_task_ends_once_whatever_breaks(home: Path, seed: int) -> None:
    chance = random.Random(seed)
    platform = Unreliable(chance)

    async def work(asked: Asked) -> Said:
        number = int(json.loads(asked.body)["input"]["text"])
        await asyncio.sleep(chance.random() * 0.1)
        if number % 5 == 0:
            return Said(body=b'{"success": false, "error": "no"}')
        files = [{"filename": f"{name}.md", "content_text": f"{number}"} for name in "ab"[: number % 3]]
        return Said(body=json.dumps({"text": str(number), "artifacts": files}).encode())

    await platform.wire.start()
    expiring = asyncio.create_task(expire(platform))
    async with local_agent(answering=work) as agent:
        write_profile(home, platform, agent.endpoint)
        runs = [platform.ask(str(number)) for number in range(TASKS)]
        for _ in range(4):
            async with runtime(home, "--concurrency", "4"):
                await asyncio.sleep(0.5 + chance.random())
        async with runtime(home, "--concurrency", "4") as program:
            # One more to do, so that it is up before it is told to stop, also where the others have done everything.
            runs.append(platform.ask(str(TASKS)))
            await platform.until(lambda: all(map(ended, runs)), 60)
            platform.quiet = True
            assert (await program.stop()).code == 0
    expiring.cancel()
    await platform.wire.stop()
    for number, run in enumerate(runs):
        assert run.state == ("completed" if number % 5 else "failed")
        assert run.output is not None
        assert run.output.get("text", "") == (str(number) if number % 5 else "")
        if run.state == "completed":
            refs = {ref["artifact_id"] for ref in run.output.get("artifact_refs", [])}
            assert refs <= {made["artifact_id"] for made in run.artifacts}
            assert len(refs) == number % 3
    assert list((home / "runs" / "default").iterdir()) == []
