"""Definitions: what they may say, and what is said about those that are wrong."""

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parley.definitions.files import MAX_BYTES
from parley.definitions.loader import NO_AGENT, LoadedDefinitions, Sources, sources
from parley.errors import ConfigurationError
from parley.runs.rules.agents import Agent, Extended, Extension, Limits, Provider, Skill

BOTS = '''
from parley import Text, agent, Skill

async def plain(turn):
    """Does it plainly."""
    yield Text(turn.text)

@agent("decorated", name="Decorated", max_concurrent=3, timeout_s=9, skills=[Skill("s", "S", "d")])
async def decorated(turn):
    """As decorated."""
    yield Text(turn.text)

number = 7
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("agents").mkdir()
    Path("agents/bots.py").write_text(BOTS)
    modules = set(sys.modules)
    yield tmp_path / "agents"
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def read(*names: str, toml: bool = False) -> LoadedDefinitions:
    return LoadedDefinitions(Sources(names or ("agents",), Path("parley.toml") if toml else None))


def only(reading: LoadedDefinitions) -> Agent:
    assert [fault.message for fault in reading.faults] == []
    (driver,) = reading.drivers
    return driver.agent


def faults(reading: LoadedDefinitions) -> list[str]:
    return [fault.message for fault in reading.faults]


def test_the_least_that_a_definition_needs(folder: Path) -> None:
    (folder / "my-bot.yaml").write_text("function: {call: 'bots.py:plain'}\n")
    agent = only(read())
    assert (agent.slug, agent.name, agent.description) == ("my-bot", "My bot", "Does it plainly.")
    assert agent.skills == (Skill("my-bot", "My bot", "Does it plainly.", ("general",)),)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("command: wc -w", "command"),
        ("command: grep -c 'two words'", "command"),
        ("command: [grep, -c, two words]", "command"),
        ("function: bots.py:plain", "function"),
        ("remote: https://agents.example.com/agents/echo", "remote"),
        ("llm: offline", "llm"),
        ("llm: anthropic:claude-sonnet-4-5", "llm"),
        ("workflow: [writer, editor, writer]", "workflow"),
        ("agentzero: http://127.0.0.1:50001", "agentzero"),
        ("driver: edge", "edge"),
    ],
)
def test_a_definition_may_be_one_line(text: str, kind: str, folder: Path) -> None:
    (folder / "counter.yaml").write_text(text)
    reading = read()
    assert only(reading).slug == "counter"
    assert reading.defined[0].kind == kind


def test_the_words_of_a_command_line_are_not_given_to_a_shell(folder: Path) -> None:
    (folder / "counter.yaml").write_text("command: grep -c 'two words' $HOME\n")
    short = read().drivers
    (folder / "counter.yaml").write_text("command: {run: [grep, -c, two words, $HOME]}\n")
    assert short == read().drivers
    (folder / "counter.yaml").write_text("command: [grep, -c, two words, $HOME]\n")
    assert short == read().drivers


def test_a_list_of_agents_is_a_workflow_of_one_step_after_another(folder: Path) -> None:
    (folder / "report.yaml").write_text("workflow: [writer, editor, writer]\n")
    (short,) = read().drivers
    (folder / "report.yaml").write_text(
        "workflow:\n  steps:\n  - {id: writer, agent: writer}\n"
        "  - {id: editor, agent: editor, depends_on: [writer]}\n"
        "  - {id: writer-2, agent: writer, depends_on: [editor]}\n"
    )
    assert short == read().drivers[0]


def test_a_model_is_named_for_the_agent_or_for_its_driver(folder: Path) -> None:
    for text in ("llm: offline", "llm: {model: offline}", "llm: {}\nmodel: offline", "llm: offline\nmodel: offline"):
        (folder / "chat.yaml").write_text(text)
        assert only(read()).model == "offline"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("command: wc '-w\n", "agents/counter.yaml:1: command: is not a valid command line: No closing quotation"),
        ("command: ''\n", "agents/counter.yaml:1: command.run: "),
        ("command: no-such-program-here -w\n", "agents/counter.yaml:1: command.run: the program no-such-program-here"),
        ("workflow: everything\n", "agents/counter.yaml:1: workflow: expected mapping, got str"),
        ("workflow: []\n", "agents/counter.yaml:1: workflow: expected mapping, got list"),
        ("workflow: [1]\n", "agents/counter.yaml:1: workflow: expected mapping, got list"),
        ("name: x\nworkflow: [a, counter]\n", "agents/counter.yaml:2: workflow.steps: "),
        ("name: x\nllm: gpt-5\n", "agents/counter.yaml:2: llm.model: must be openai:NAME, anthropic:NAME or offline"),
        ("model: openai:a\nllm: offline\n", "agents/counter.yaml:2: llm.model: is given twice; remove one of them"),
        ("name: x\norg: no-such-folder\n", "agents/counter.yaml:2: org.folder: "),
        ("name: x\nagentzero: nowhere\n", "agents/counter.yaml:2: agentzero.url: "),
        ("function: bots.py\n", "agents/counter.yaml:1: function.call: must be path/to/file.py:name"),
    ],
)
def test_one_line_that_is_wrong_is_told_like_any_other(text: str, message: str, folder: Path) -> None:
    (folder / "counter.yaml").write_text(text)
    (told,) = faults(read())
    assert told.startswith(message)


def test_the_complete_example_of_the_page_is_read_in_full(folder: Path) -> None:
    page = Path(__file__).parent.parent.parent / "docs" / "agents.md"
    example = page.read_text().split("```yaml\n")[1].split("```")[0]
    (folder / "support.yaml").write_text(example)
    (folder / "support.py").write_text("async def answer(turn):\n    return turn.agent.model\n")
    agent = only(read())
    unset = Agent("", "", "")
    assert agent.version == "1.0"
    assert agent.limits == Limits(4, 100, 60.0, 50.0, 100)
    assert agent.provider == Provider("Example", "https://example.com")
    assert isinstance(agent.extended, Extended)
    assert agent.extensions == (
        Extension("https://example.com/extensions/orders", "Order numbers as data parts."),
    )  # fmt: skip
    usual = {"rescue", "replies", "streaming", "push"}
    for name in Agent.__struct_fields__:
        assert f"\n{name}:" in "\n" + example, name
        assert name in usual or getattr(agent, name) != getattr(unset, name), name


def test_the_file_goes_before_the_decorator_and_the_rest_stays(folder: Path) -> None:
    (folder / "mine.yaml").write_text("function: {call: 'bots.py:decorated'}\nlimits: {max_concurrent: 1}\n")
    agent = only(read())
    assert (agent.slug, agent.name, agent.description) == ("mine", "Decorated", "As decorated.")
    assert agent.limits == Limits(1, None, 9)
    assert agent.skills == (Skill("s", "S", "d"),)


def test_a_limit_can_be_taken_away_by_the_file(folder: Path) -> None:
    (folder / "mine.yaml").write_text("function: {call: 'bots.py:decorated'}\nlimits: {max_concurrent: null}\n")
    assert only(read()).limits == Limits(None, None, 9)


def test_text_is_kept_as_it_was_written(folder: Path) -> None:
    (folder / "a.yaml").write_text(
        "version: 1.10\nname: on\nmodel: 0x10\ndescription: 2024-01-01\nfunction: {call: 'bots.py:plain'}\n"
        "skills: [{id: 1, name: no, description: 1_000, tags: [1.50, true]}]\n"
    )
    agent = only(read())
    assert (agent.version, agent.name, agent.model, agent.description) == ("1.10", "on", "0x10", "2024-01-01")
    assert agent.skills == (Skill("1", "no", "1_000", ("1.50", "true")),)


def test_tables_of_the_settings_file(folder: Path) -> None:
    Path("parley.toml").write_text(
        'port = 1\n[[agent]]\nslug = "a"\nversion = 2.10\nfunction.call = "agents/bots.py:plain"\n'
        '[[agent]]\nslug = "b"\n[agent.function]\ncall = "agents/bots.py:decorated"\n[agent.limits]\nmax_queued = 2\n'
    )
    reading = read(toml=True)
    assert faults(reading) == []
    assert [(one.driver.agent.slug, one.file, one.line) for one in reading.defined] == [
        ("a", "parley.toml", 3),
        ("b", "parley.toml", 7),
    ]
    assert reading.drivers[0].agent.version == "2.10"
    assert reading.drivers[1].agent.limits == Limits(3, 2, 9)


def test_python_files_and_modules_are_definitions_too(folder: Path) -> None:
    Path("pack").mkdir()
    Path("pack/__init__.py").write_text("")
    Path("pack/words.py").write_text("GREETING = 'hello'\n")
    Path("pack/bots.py").write_text(
        "from parley import agent\nfrom .words import GREETING\n@agent('polite')\ndef polite(turn): return GREETING\n"
    )
    assert only(read("agents/bots.py")).slug == "decorated"
    assert only(read("pack.bots")).slug == "polite"
    (folder / "p.yaml").write_text("function: {call: 'pack.bots:polite'}\n")
    assert only(read()).slug == "p"


def test_whatever_drives_an_agent_is_found_in_a_python_file(folder: Path) -> None:
    (folder / "drivers.py").write_text(
        "from parley import Text\nfrom parley.runs.rules.agents import Agent\n"
        "class Driver:\n"
        "    agent = Agent('driven', 'Driven', 'Driven by hand.')\n"
        "    async def run(self, turn): yield Text('hi')\n"
        "driven = Driver()\n"
        "class Other:\n"
        "    agent = 'nobody'\n"
        "    def run(self): ...\n"
        "other = Other()\n"
    )
    reading = read("agents/drivers.py")
    assert only(reading).slug == "driven"
    assert reading.defined[0].kind == "driver"
    (folder / "none.py").write_text("number = 7\n")
    assert faults(read("agents/none.py")) == [f"agents/none.py: {NO_AGENT}"]


def test_the_folder_is_taken_when_nothing_is_named(folder: Path) -> None:
    assert sources([], "parley.toml") == Sources((), Path("parley.toml"), Path("agents"))
    assert sources(["x.py"], "parley.toml") == Sources(("x.py",), Path("parley.toml"))
    (folder / "p.yaml").write_text("function: {call: 'bots.py:decorated'}\n")
    assert only(LoadedDefinitions(sources([], "parley.toml"))).slug == "p"


def test_a_folder_that_is_not_there_yet_is_no_fault() -> None:
    Path("agents/bots.py").unlink()
    Path("agents").rmdir()
    reading = LoadedDefinitions(sources([], "parley.toml"))
    assert (reading.faults, reading.drivers) == ([], [])
    Path("agents").mkdir()
    assert reading.stale


def test_an_editors_own_files_are_left_alone(folder: Path) -> None:
    for name in (".a.yaml", ".#a.yaml", "a.yaml~", "a.yaml.swp", "#a.yaml#"):
        (folder / name).write_text("{")
    assert read().drivers == []
    assert read().faults == []


CALL = "function: {call: 'bots.py:plain'}\n"

BROKEN = [
    ("", "1: the file is empty"),
    ("# only words\n", "1: the file is empty"),
    ("[1, 2]\n", "1: must be a mapping of fields"),
    ("name: x\n\nlimits: [\n", "4: expected the node content, but found '<stream end>'"),
    ("name: x\n  y: z\n", "2: mapping values are not allowed here"),
    ("name: a\n---\nname: b\n", "2: but found another document"),
    ("name: !!python/name:os.system x\n" + CALL,
     "1: name: the tag !!python/name:os.system is not supported; remove it"),
    ("name: !mine x\n" + CALL, "1: name: the tag !mine is not supported; remove it"),
    ("name: x\n" + CALL + "name: y\n", "3: name: is set twice, first in line 1"),
    (CALL + "limits:\n  max_concurrent: two\n", "3: limits.max_concurrent: expected int, got str"),
    (CALL + "limits:\n  max_concurrent: 1.5\n", "3: limits.max_concurrent: expected int, got float"),
    (CALL + "limits:\n  max_concurrent: true\n", "3: limits.max_concurrent: expected int, got bool"),
    (CALL + "limits:\n  timeout_s: .inf\n", "3: limits.timeout_s: expected float, got str"),
    (CALL + "limits: 3\n", "2: limits: expected mapping, got int"),
    (
        CALL + "limits:\n  max_concurrent: 0\n",
        "3: limits.max_concurrent: Agent a: limit max_concurrent must be positive, and at most 1,000,000.",
    ),
    (
        CALL + "limits: {max_concurrent: 99999999999999999999}\n",
        "2: limits.max_concurrent: Agent a: limit max_concurrent must be positive, and at most 1,000,000.",
    ),
    (CALL + "limits:\n  max_queu: 3\n", "3: limits.max_queu: unknown field; did you mean max_queued?"),
    (CALL + "descripton: x\n", "2: descripton: unknown field; did you mean description?"),
    (CALL + "zzz: x\n", "2: zzz: unknown field"),
    (CALL + "<<: {name: x}\n", "2: << is not supported; write the fields out"),
    (CALL + "? [a]\n: b\n", "2: field names must be text"),
    (CALL + "skills:\n  - id: a\n    name: b\n", "3: skills[0].description: is missing"),
    (CALL + "skills:\n  - {id: a, name: b, description: c, tags: x}\n", "3: skills[0].tags: expected list, got str"),
    (
        CALL + "extended:\n  skills:\n  - id: a\n    name: b\n    description: c\n    tag: [x]\n",
        "7: extended.skills[0].tag: unknown field; did you mean tags?",
    ),
    (CALL + "visibility: secret\n", "2: visibility: expected public, internal or private, got 'secret'"),
    (CALL + "streaming: maybe\n", "2: streaming: expected bool, got str"),
    (CALL + "provider: {organization: x}\n", "2: provider.url: is missing"),
    (
        "driver: lllm\n",
        "1: driver: expected function, llm, command, remote, edge, agentzero, org, workflow, pydantic-ai, "
        "openai-agents or langgraph, got 'lllm'",
    ),
    ("name: x\n", "1: function.call: is missing"),
    ("function:\n  cal: x\n", "2: function.cal: unknown field; did you mean call?"),
    ("function:\n  call: bots.py\n", "2: function.call: must be path/to/file.py:name or package.module:name"),
    ("function:\n  call: bots.py:plian\n", "2: function.call: bots.py has no function plian; did you mean plain?"),
    ("function:\n  call: bots.py:number\n", "2: function.call: number is not a function; its type is int"),
    ("function:\n  call: none.py:x\n", "2: function.call: the file agents/none.py does not exist; check the path"),
    ('function:\n  call: "a\\0.py:x"\n', "2: function.call: the file agents/a\0.py does not exist; check the path"),
    ("function:\n  call: no_such_module:x\n",
     "2: function.call: the module no_such_module cannot be found; check its name"),
    ("driver: llm\n", "1: model: is missing; set it to openai:NAME, anthropic:NAME or offline"),
    ("llm: {}\nmodel: gpt-5\n", "2: model: must be openai:NAME, anthropic:NAME or offline, not 'gpt-5'"),
    ("model: offline\nllm:\n  key_from: sk-123\n",
     "3: llm.key_from: must be the name of an environment variable, not the key itself"),
    ("model: offline\nllm:\n  base_url: ftp://x\n",
     "3: llm.base_url: must be an http or https URL without credentials, query or fragment"),
    ("model: offline\nllm:\n  history: -1\n", "3: llm.history: must be between 0 and 1000"),
    ("model: offline\nllm:\n  temperature: warm\n", "3: llm.temperature: expected float, got str"),
    ("model: offline\nllm:\n  instruction: x\n",
     "3: llm.instruction: unknown field; did you mean instructions?"),
    ("model: anthropic:c\nllm:\n  temperature: 1\n",
     "3: llm.temperature: Anthropic models accept no temperature; remove it"),
    ("command:\n  input: text\n", "1: command.run: is missing"),
    ("command:\n  run: []\n", "2: command.run: must list the program and its arguments"),
    ("command:\n  run: ls -l\n", "2: command.run: expected list, got str"),
    ("command:\n  run: [nowhere]\n",
     "2: command.run: the program nowhere is not on the PATH; write ./nowhere for a program next to this file"),
    ("command:\n  run: [./none]\n", "2: command.run: the file agents/none does not exist; check the path"),
    ("command:\n  run: [./bots.py]\n", "2: command.run: the file agents/bots.py is not executable; run chmod +x on it"),
    ("command:\n  run: [ls]\n  cwd: none\n", "3: command.cwd: the folder does not exist: agents/none"),
    ("command:\n  run: [ls]\n  input: xml\n", "3: command.input: expected text or json, got 'xml'"),
    ("command:\n  run: [ls]\n  env: [A=b]\n",
     "3: command.env: must list names of environment variables, not their values"),
    ("command:\n  run: [ls]\n  memory_mb: 0\n", "3: command.memory_mb: must be between 1 and 16,777,216"),
    ('name: "\\ud800"\n' + CALL, "1: name: contains an incomplete character (a lone surrogate)"),
    ("slug: Not A Slug\n" + CALL, "1: slug: Agent slug 'Not A Slug': use 1 to 63 lower-case letters, digits, - or _, "
     "starting and ending with a letter or digit."),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_what_is_wrong_is_told_with_its_line(text: str, message: str, folder: Path) -> None:
    (folder / "a.yaml").write_text(text)
    reading = read()
    assert "agents/a.yaml:" + message in faults(reading)
    assert reading.drivers == []
    first = reading.faults[0]
    assert first.code == "configuration"
    assert first.details["file"] == "agents/a.yaml"
    assert isinstance(first.details["line"], int)


BROKEN_TOML = [
    ("[[agent]]\nslug = \n", "2: Invalid value"),
    ("[agent]\nslug = 'a'\n", "1: agent: use [[agent]], one table for each agent"),
    ("port = 1\n[[agent]]\nfunction.call = 'agents/bots.py:plain'\n", "2: slug: is missing"),
    (
        "[[agent]]\nslug = 'a'\nfunction.call = 'agents/bots.py:plain'\n[[agent]]\nslug = 'b'\nnam = 'x'\n"
        "function.call = 'agents/bots.py:plain'\n",
        "6: nam: unknown field; did you mean name?",
    ),
    (
        "[[agent]]\nslug = 'a'\n[agent.limits]\nmax_queued = '1'\n[agent.function]\ncall = 'agents/bots.py:plain'\n",
        "4: limits.max_queued: expected int, got str",
    ),
    (
        "[[agent]]\nslug = 'a'\ndescription = '''\n[[agent]]\nnam = 1\n'''\n[[agent.skills]]\nid = 'x'\n"
        "[[agent.skills]]\nid = 5.0\nname = 'x'\ndescription = 'x'\ntagz = []\n",
        "13: skills[1].tagz: unknown field; did you mean tags?",
    ),
]


@pytest.mark.parametrize(("text", "message"), BROKEN_TOML)
def test_tables_are_told_with_their_line_too(text: str, message: str) -> None:
    Path("parley.toml").write_text(text)
    assert "parley.toml:" + message in faults(read(toml=True))


def test_everything_that_is_wrong_in_all_files_is_told_at_once(folder: Path) -> None:
    (folder / "a.yaml").write_text("nam: x\nversion: []\n" + "function: {call: 'bots.py:none'}\n")
    (folder / "b.yaml").write_text("{")
    (folder / "c.yaml").write_text("slug: d\n" + CALL)
    (folder / "d.yml").write_text(CALL)
    reading = read()
    with pytest.raises(ConfigurationError) as raised:
        reading.check()
    assert raised.value.message.splitlines() == [
        "agents/a.yaml:1: nam: unknown field; did you mean name?",
        "agents/a.yaml:2: version: expected str, got list",
        "agents/a.yaml:3: function.call: bots.py has no function none",
        "agents/b.yaml:1: expected the node content, but found '<stream end>'",
        "agents/d.yml:1: slug: d is already defined in agents/c.yaml:1",
    ]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = (\n", "agents/code.py:1: '(' was never closed"),
        ("import parley\n\nundefined\n", "agents/code.py:3: NameError: name 'undefined' is not defined"),
        ("import nothing_like_it\n", "agents/code.py:1: ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("raise SystemExit(3)\n", "agents/code.py:1: SystemExit: 3"),
    ],
)
def test_a_python_file_that_cannot_be_imported_is_told_with_its_line(
    source: str, message: str, folder: Path
) -> None:  # fmt: skip
    (folder / "code.py").write_text(source)
    (folder / "a.yaml").write_text("\nfunction:\n  call: code.py:x\n")
    assert faults(read()) == [f"agents/a.yaml:3: function.call: {message}"]


def test_a_file_that_imports_its_neighbour_is_told_how(folder: Path) -> None:
    (folder / "neighbour_of_code.py").write_text("x = 1\n")
    (folder / "code.py").write_text("import neighbour_of_code\n")
    (folder / "a.yaml").write_text("function: {call: code.py:x}\n")
    (fault,) = faults(read())
    assert (
        "agents/code.py:1: ModuleNotFoundError: No module named 'neighbour_of_code'; it lies beside this file" in fault
    )
    assert "start with PYTHONPATH=agents, or name the code as package.module:name" in fault


NINEFOLD = "{1}: &{1} [*{0}, *{0}, *{0}, *{0}, *{0}, *{0}, *{0}, *{0}, *{0}]\n"


def test_a_file_that_is_too_large_or_no_text_is_refused(folder: Path) -> None:
    (folder / "a.yaml").write_bytes(b"#" * (MAX_BYTES + 1))
    (folder / "b.yaml").write_bytes(b"name: x\n\xff\n")
    assert faults(read()) == ["agents/a.yaml: is larger than 256 kB", "agents/b.yaml:2: is not valid UTF-8 text"]


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(NINEFOLD.format(*pair) for pair in pairwise("abcdefgh")),
        "a: &a\n  b: *a\n",
        "[" * 5000,
        "x: " + "{a: " * 200 + "1" + "}" * 200,
    ],
)  # fmt: skip
def test_a_small_file_cannot_become_a_large_value(text: str, folder: Path) -> None:
    (folder / "a.yaml").write_text(text)
    (message,) = faults(read())
    assert "too many values" in message or "too deeply" in message


def test_an_alias_may_be_used(folder: Path) -> None:
    (folder / "a.yaml").write_text(CALL + "input_modes: &modes [text/plain]\noutput_modes: *modes\n")
    assert only(read()).output_modes == ("text/plain",)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_are_a_definition_or_a_fault(content: bytes) -> None:
    Path("agents/a.yaml").write_bytes(content)
    Path("parley.toml").write_bytes(content)
    assert read().faults
    read(toml=True)


WORDS = st.sampled_from(
    ["name", "limits", "max_concurrent", "skills", "function", "call", "bots.py:plain", "slug", "a"]
)
TRAPS = ['"\\UFFFFFFFF"', "!!x", "&a", "*a", "0b_", "1:2", "=", "!!int x", "!!bool x"]
VALUES = st.recursive(
    WORDS | st.integers() | st.floats() | st.booleans() | st.none() | st.sampled_from(TRAPS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(WORDS, VALUES, max_size=5))
def test_any_fields_are_a_definition_or_a_fault(value: dict[str, object]) -> None:
    Path("agents/a.yaml").write_text(flow(value))
    reading = read()
    assert bool(reading.faults) != bool(reading.drivers)


def flow(value: object) -> str:
    """The value as YAML would have it in one line, with nothing escaped: that is the point."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    return "[" + ", ".join(map(flow, value)) + "]" if isinstance(value, list) else str(value)


def test_a_python_file_that_has_not_changed_is_not_run_again(folder: Path) -> None:
    (folder / "a.yaml").write_text(CALL)
    first = read()
    second = LoadedDefinitions(Sources(("agents",)), first)
    assert second.drivers == first.drivers
    (folder / "bots.py").write_text(BOTS.replace("plainly", "PLAINLY"))
    third = LoadedDefinitions(Sources(("agents",)), second)
    assert third.drivers != first.drivers
    assert third.drivers[0].agent.description == "Does it PLAINLY."
    second.imports.forget(third.imports)
    assert len([name for name in sys.modules if name.startswith("bots__")]) == 1
