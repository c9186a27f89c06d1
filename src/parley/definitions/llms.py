"""The driver `llm` in a definition: which model, and how it is asked."""

import re
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from parley.core.agents import Agent
from parley.definitions.kind import Site, blank
from parley.drivers.llm import HISTORY, MAX_ROUNDS, LlmDriver
from parley.engine.ports import Sampling
from parley.errors import Invalid
from parley.models.content import READS
from parley.models.names import Access, open_model

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class LlmOptions(Struct, frozen=True):
    instructions: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    """How long an answer may be; callers who choose for themselves can choose no more."""
    models: tuple[str, ...] = ()
    """Other models of the same vendor that callers may choose for a document; `*` stands for any characters."""
    base_url: str | None = None
    """Another server that speaks the vendor's language."""
    key_from: str | None = None
    """The environment variable with the key; with `base_url` no key is sent unless one is named."""
    history: int = HISTORY
    """How many earlier rounds of the conversation the model reads."""
    timeout_s: float = 60.0
    """The longest silence of the vendor."""
    retries: int = 2
    approve: tuple[str, ...] = ()
    """Tools that a person has to agree to, each time: `server/tool`, `server`, or `*` for all."""
    max_rounds: int = MAX_ROUNDS
    """How often in a row the model may want tools called."""


def start_llm(slug: str, options: LlmOptions, site: Site) -> Agent:
    return replace(blank(slug, options, site), input_modes=READS)


def build_llm(agent: Agent, options: LlmOptions, site: Site) -> LlmDriver:
    _check(options)
    if agent.model is None:
        raise Invalid("is missing; write openai:NAME, anthropic:NAME or offline", field="model")
    if options.temperature is not None and agent.model.startswith("anthropic:"):
        raise Invalid("the models of this vendor take none", field="temperature")
    llm = open_model(agent.model, Access(options.base_url, options.key_from, options.timeout_s, options.retries))
    if agent.input_modes == READS:
        agent = replace(agent, input_modes=llm.reads)
    sampling = Sampling(options.instructions, options.temperature, options.max_tokens)
    return LlmDriver(agent, llm, sampling, options.history, options.approve, options.max_rounds, options.models)


def _check(options: LlmOptions) -> None:
    if options.key_from is not None and _VARIABLE.fullmatch(options.key_from) is None:
        raise Invalid("is the name of an environment variable, never the key itself", field="key_from")
    for name, least, most in (
        ("temperature", 0, 2), ("max_tokens", 1, 10_000_000), ("history", 0, 1000),
        ("max_rounds", 1, 1000),
        ("timeout_s", 0.001, 3600), ("retries", 0, 10),
    ):  # fmt: skip
        value = getattr(options, name)
        if value is not None and not least <= value <= most:
            raise Invalid(f"is between {least} and {most}", field=name)
    if options.base_url is not None:
        _check_url(options.base_url)


def _check_url(text: str) -> None:
    try:
        url = urlsplit(text)
        right = url.scheme in ("http", "https") and url.hostname and not (url.username or url.query or url.fragment)
    except ValueError:
        right = False
    if not right:
        raise Invalid("is an http or https address, without credentials or a query", field="base_url")
