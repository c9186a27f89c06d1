"""What goes into logs, results and proofs carries no secrets, and, where asked, nobody's address or number.

Every pattern begins at a place where none of its characters stands before, and gives nothing back once taken: so a text
is looked through in time that grows with its length, whoever wrote it.
"""

import re

from parley.core.canonical import MAX_DEPTH, Json
from parley.errors import Invalid

REDACTED = "[REDACTED]"
EMAIL = "[REDACTED_EMAIL]"
PHONE = "[REDACTED_PHONE]"
MOST_SHOWN = 80
_LOOKED_AT = 64 * 1024
"""More of a text is not looked at for a preview: it would have to hide behind a secret of this length."""

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SECRET_NAMES = ("authorization", "cookie", "password", "secret", "token", "api_key", "apikey")
_SECRET_ENDS = tuple(f"_{name}" for name in _SECRET_NAMES)
_SECRET = re.compile(
    r"(?<![A-Za-z])[Bb](?:earer|EARER)\s++[^\s\"',;<>]++"
    r"|(?<![A-Za-z])(?:sk-[\w-]{8,}+|(?:gh[pousr]_|github_pat_)\w++)"
    r"|(?<![\w-])eyJ[\w-]++(?:\.[\w-]*+){2,4}+",
    re.ASCII,
)
_PROVIDER_KEY = re.compile(
    r"(?<![A-Za-z0-9])(?:AIza[\w-]{20,}+|AKIA[0-9A-Z]{12,}+|(?:gsk_|hf_|xai-|pplx-|r8_|xox[abp]-)[\w-]{8,}+)", re.ASCII
)
_NAMED_SECRET = re.compile(
    r"((?:authorization|cookie|password|passwd|passphrase|pwd|secret|token|api[_ -]?key|(?<![a-z])key)"
    r"[\"']?(?: (?:provided|given))?\s{0,2}+[=:]\s{0,2}+)(?!\[REDACTED)"
    r"(?:(?:basic|bearer|digest|token)\s++)?(?:\"[^\"\n]*+\"?|'[^'\n]*+'?|[^\s,;&\"'<>(){}\[\]]++)",
    re.IGNORECASE | re.ASCII,
)
"""A name of a secret with a value behind it, as error messages write it: `password=…`, `"api_key": "…"`."""
_LOGIN_IN_URL = re.compile(r"(?<=://)[^\s/:@]{0,200}+:[^\s/@]{1,200}+(?=@)", re.ASCII)
_EMAIL = re.compile(r"(?<![\w.%+-])[\w.%+-]++@(?:[\w-]++\.)+[^\W\d_]{2,}+")
_ADDRESS_RUN = re.compile(r"[\w.%+@-]++")
"""Everything that an address can be glued to. Runs do not overlap, so what is left of one never becomes another."""
_PHONE = re.compile(
    r"\+\d(?:[ ().-]{0,2}+\d){7,}+|(?<![\w+.-])\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}(?![\w-])", re.ASCII
)  # fmt: skip


def sanitised(value: Json, *, personal: bool = True) -> Json:
    """The value without secrets: by the names of members, and by how a text looks. `personal`: without addresses and
    telephone numbers of people too."""
    return _sanitised(value, personal, 1)


def sanitised_text(text: str, *, personal: bool = True) -> str:
    text = _SECRET.sub(REDACTED, text)
    if not personal:
        return text
    without = _PHONE.sub(PHONE, _ADDRESS_RUN.sub(_without_address, text))
    # A secret that was glued to a number stands by itself once the number is gone.
    return text if without == text else _SECRET.sub(REDACTED, without)


def _without_address(run: re.Match[str]) -> str:
    if "@" not in run[0] or _EMAIL.search(run[0]) is None:
        return run[0]
    return EMAIL + run[0][len(run[0].rstrip(".%+-")) :]


def sanitised_error(text: str) -> str:
    """The text of an error without secrets: by how they look, and by the names that stand before them. Error messages
    name what they quote; other texts may speak of passwords without holding any, so they do not go through this."""
    text = _LOGIN_IN_URL.sub(REDACTED, _PROVIDER_KEY.sub(REDACTED, sanitised_text(text, personal=False)))
    return _NAMED_SECRET.sub(lambda found: f"{found[1]}{REDACTED}", text)


def is_secret(name: str) -> bool:
    """Whether what a member of this name holds is nobody's business, in whatever style the name is written."""
    plain = _HUMP.sub("_", name).replace("-", "_").lower()
    return plain in _SECRET_NAMES or plain.endswith(_SECRET_ENDS)


def _sanitised(value: Json, personal: bool, depth: int) -> Json:
    if depth > MAX_DEPTH:
        raise Invalid(f"The value is nested deeper than {MAX_DEPTH} levels.")
    match value:
        case str():
            return sanitised_text(value, personal=personal)
        case list():
            return [_sanitised(one, personal, depth + 1) for one in value]
        case dict():
            return {
                sanitised_text(name, personal=personal): (
                    REDACTED if is_secret(name) else _sanitised(one, personal, depth + 1)
                )
                for name, one in value.items()
            }
        case _:
            return value


def preview(*texts: str, most: int = MOST_SHOWN) -> str:
    """The beginning of a text as a log may show it: in one line, without secrets and without anybody's address."""
    whole = " ".join(text[:_LOOKED_AT] for text in texts)[:_LOOKED_AT]
    line = "".join(one if one.isprintable() else " " for one in sanitised_text(whole))
    line = " ".join(line.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
