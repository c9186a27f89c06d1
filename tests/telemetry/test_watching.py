"""Files for operators (`deploy/`) use only metrics that exist."""

import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import httpx2
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from parley.client import Client
from parley.runs.rules.events import ToolStatus
from parley.runs.rules.state import State
from parley.telemetry import FAILED
from parley.telemetry.logs import WARNINGS
from parley.testing.servers import Server, serving
from tests.faces.conftest import echo, sleeper
from tests.telemetry.promql import spoken
from tests.telemetry.test_metrics import narrow, tells

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
PROMTOOL = shutil.which("promtool")
EVERYWHERE = {"up": {"job", "instance"}}
"""Labels and metrics that Prometheus itself adds."""
OUTCOMES = {"ok", "refused", "error", "canceled", *(state.value for state in State), *get_args(ToolStatus)}

needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool (Debian: prometheus) is not installed.")


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((PROMETHEUS / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def board() -> dict[str, Any]:
    return json.loads((ROOT / "deploy/grafana/parley.json").read_text())


def panels() -> list[dict[str, Any]]:
    return board()["panels"]


def expressions() -> list[str]:
    drawn = [target["expr"] for panel in panels() for target in panel.get("targets", ())]
    return [*(rule["expr"] for rule in rules()), *drawn]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path / "data", [echo, narrow, sleeper]) as running:
        yield running


async def served(server: Server) -> dict[str, set[str]]:
    """By sample: the labels that it has, and those that Prometheus gives it."""
    async with (
        Client(server.agent("echo")) as client,
        Client(server.agent("narrow")) as other,
        Client(server.agent("sleeper")) as busy,
    ):
        await client.send("hello")
        await other.send("hello")
        await busy.send("hello", configuration={"returnImmediately": True})
        async with httpx2.AsyncClient() as http:
            text = (await http.get(f"{server.url}/metrics")).text
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {"job", "instance"}).update(sample.labels)
    return found


async def test_whatever_alerts_and_dashboard_name_is_served(server: Server) -> None:
    known = {**EVERYWHERE, **await served(server)}
    assert len(expressions()) > 50
    for expression in expressions():
        said = spoken(expression)
        assert said.metrics <= set(known), expression
        assert said.metrics, expression
        assert said.labels <= set[str]().union(*(known[name] for name in said.metrics)), expression


def test_what_figures_are_asked_for_by_name_is_told_somewhere() -> None:
    names = {name for _, name, _ in tells()}
    for expression in expressions():
        for metric, label, value in spoken(expression).wanted:
            if label == "name":
                assert value in (WARNINGS if metric.startswith("parley_warnings") else names), expression
            if label == "outcome":
                assert value in OUTCOMES, expression


def test_every_warning_is_told_somewhere() -> None:
    """But for `push.dead`, whose name is put together, and the one for handlers that failed themselves."""
    assert WARNINGS - {name for _, name, _ in tells()} == {"push.dead", FAILED}


async def test_warnings_are_counted_from_none_on(server: Server) -> None:
    async with httpx2.AsyncClient() as http:
        text = (await http.get(f"{server.url}/metrics")).text
    counted = dict(re.findall(r'parley_warnings_total\{name="([^"]+)"\} (\S+)', text))
    assert set(counted) == WARNINGS
    assert counted["push.dead"] == "0.0"


def test_every_alert_says_how_bad_it_is_and_is_explained() -> None:
    page = (ROOT / "docs/telemetry.md").read_text()
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"].endswith(".")
        assert f"`{rule['alert']}`" in page


def test_every_alert_is_seen_to_fire() -> None:
    tests = yaml.safe_load((PROMETHEUS / "alerts_test.yaml").read_text())["tests"]
    fired = [sample["labels"] for one in tests for each in one["promql_expr_test"] for sample in each["exp_samples"]]
    assert {re.findall(r'"(\w+)"', labels)[0] for labels in fired} == {rule["alert"] for rule in rules()}
    assert sum(not each["exp_samples"] for one in tests for each in one["promql_expr_test"]) >= 5


@needs_promtool
@pytest.mark.parametrize(
    "words",
    [
        "check rules alerts.yaml",
        "check config prometheus.yaml",
        pytest.param("test rules alerts_test.yaml", marks=pytest.mark.slow),
    ],
)
def test_promtool_finds_nothing_wrong(words: str) -> None:
    done = subprocess.run([str(PROMTOOL), *words.split()], cwd=PROMETHEUS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_promtool_can_read_what_the_dashboard_asks(tmp_path: Path) -> None:
    """As rules, which it checks; with values for what Grafana puts in."""
    drawn = [target["expr"] for panel in panels() for target in panel.get("targets", ())]
    given = {"$__rate_interval": "5m", "$job": "parley", "$agent": ".*"}
    for name, value in given.items():
        drawn = [one.replace(name, value) for one in drawn]
    assert not [one for one in drawn if "$" in one]
    group = {"name": "dashboard", "rules": [{"record": f"r{n}", "expr": one} for n, one in enumerate(drawn)]}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [group]}))
    done = subprocess.run(
        [str(PROMTOOL), "check", "rules", "rules.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_panels_lie_beside_each_other_and_are_of_the_chosen_servers() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        for target in panel.get("targets", ()):
            assert 'job="$job"' in target["expr"]
            assert target["datasource"]["uid"] == "${datasource}"
    assert len({panel["id"] for panel in panels()}) == len(panels())
    assert {one["name"] for one in board()["templating"]["list"]} == {"datasource", "job", "agent"}


@pytest.mark.parametrize("wrong", ['sum(rate(x_total{a="b"}[5m])', "x{a=~b}", '{a="b"} > 1', "sum(x))"])
def test_an_expression_that_cannot_be_read_is_found(wrong: str) -> None:
    with pytest.raises(AssertionError):
        spoken(wrong)


def test_names_are_found_in_an_expression() -> None:
    said = spoken('sum by (job, le) (rate(a_bucket{name=~"x|y", tool!=""}[5m])) > 2 * b and c offset 1h > 1e9')
    assert said.metrics == {"a_bucket", "b", "c"}
    assert said.labels == {"job", "le", "name", "tool"}
    assert said.wanted == [("a_bucket", "name", "x"), ("a_bucket", "name", "y")]
