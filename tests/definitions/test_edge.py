"""Agents behind NAT, as files."""

from pathlib import Path

from parley.definitions.loader import LoadedDefinitions, Sources
from parley.paired.driver import EdgeDriver


def read(folder: Path, **files: str) -> LoadedDefinitions:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return LoadedDefinitions(Sources((str(folder),)))


def test_an_edge_agent_needs_nothing_but_its_driver(tmp_path: Path) -> None:
    reading = read(tmp_path, far="driver: edge\n", away="edge: {}\nlimits: {max_queued: 7}\n")
    assert reading.faults == []
    away, far = reading.drivers
    assert isinstance(far, EdgeDriver)
    assert isinstance(away, EdgeDriver)
    assert (far.agent.slug, far.agent.skills[0].id, away.agent.limits.max_queued) == ("far", "far", 7)


def test_it_has_no_options(tmp_path: Path) -> None:
    reading = read(tmp_path, far="driver: edge\nedge:\n  url: http://127.0.0.1:18789/run-task\n")
    assert [fault.message.partition("far.yaml:")[2] for fault in reading.faults] == ["3: edge.url: unknown field"]


def test_it_can_be_a_table_of_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "parley.toml"
    file.write_text('[[agent]]\nslug = "far"\ndriver = "edge"\n')
    reading = LoadedDefinitions(Sources((), file))
    assert [(one.kind, one.driver.agent.slug) for one in reading.defined] == [("edge", "far")]


def test_the_same_definition_is_the_same_driver(tmp_path: Path) -> None:
    first, again = read(tmp_path, far="driver: edge\n"), read(tmp_path)
    assert first.drivers == again.drivers
