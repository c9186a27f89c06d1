"""Names in status texts. A node's name is an order ("Implement the fix"); a status needs "implementing the fix"."""

_DOUBLED = {
    "begin": "beginning", "commit": "committing", "cut": "cutting", "debug": "debugging", "get": "getting",
    "log": "logging", "map": "mapping", "plan": "planning", "put": "putting", "run": "running", "scan": "scanning",
    "set": "setting", "ship": "shipping", "stop": "stopping", "strip": "stripping", "submit": "submitting",
    "tag": "tagging", "trim": "trimming",
}  # fmt: skip
_WORDS = (
    "add adjust analyse analyze answer apply archive ask assemble back baseline branch bring build bump call "
    "capture check choose classify clean clone close collect compare compile compose confirm connect copy correct "
    "create decide define delete deploy describe design detect determine diagnose discover document download "
    "draft edit escalate establish evaluate examine execute explain explore extract fetch filter find finish fix "
    "format gather generate give handle identify implement improve inspect install integrate interpret "
    "investigate isolate keep launch list load locate look make measure merge migrate move name note open "
    "organise organize outline parse patch pick prepare probe produce profile propose publish pull push query "
    "read rebase receive record refactor register release remove rename repair repeat replace report reproduce "
    "request research resolve respond restart restore return review revise revert roll save scaffold search "
    "select send sketch solve sort specify stage start store summarise summarize switch synthesise synthesize "
    "tell test think tidy trace track transform translate trim try tune understand undo update upgrade upload use "
    "validate verify wait watch work write"
)
_VERBS = frozenset(_WORDS.split())


def doing(order: str) -> str:
    """Return an order as work in progress. A name that is not an order is returned unchanged."""
    first, space, rest = order.strip().partition(" ")
    verb = first.lower()
    if verb in _DOUBLED:
        return f"{_DOUBLED[verb]}{space}{rest}"
    if verb in _VERBS:
        return f"{_under_way(verb)}{space}{rest}"
    return order.strip()


def _under_way(verb: str) -> str:
    return f"{verb[:-1]}ing" if verb.endswith("e") and not verb.endswith(("ee", "oe", "ye")) else f"{verb}ing"


_SHORT = "api cli css csv elint html http humint json llm osint pdf sdk sigint sql ssh ui url xo yaml"
_ACRONYMS = frozenset(_SHORT.split())
_LONG = {"codegen": "code generation", "config": "configuration", "mgmt": "management", "ops": "operations"}


def plain_name(identifier: str) -> str:
    """Convert "dependency_mgmt" to "Dependency management"."""
    words = _words(identifier)
    return " ".join([*(word[:1].upper() + word[1:] for word in words[:1]), *words[1:]])


def title_name(identifier: str) -> str:
    """Convert "bugfix_workflow" to "Bugfix Workflow". A name that is written in words is returned unchanged."""
    if not identifier.islower() or " " in identifier:
        return identifier
    return " ".join(word[:1].upper() + word[1:] for word in _words(identifier))


def _words(identifier: str) -> list[str]:
    found = identifier.replace("_", " ").replace("-", " ").lower().split()
    return [word for one in found for word in (one.upper() if one in _ACRONYMS else _LONG.get(one, one)).split()]


def times(many: int) -> str:
    return "once" if many == 1 else f"{many} times"
