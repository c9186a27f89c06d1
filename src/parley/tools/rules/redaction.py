"""Removes secrets from logs, results and proofs and, if asked, addresses and telephone numbers of people.

Every pattern begins where none of its characters stands before, and never backtracks, so that the time grows only in
proportion to the text, even for hostile texts.
"""

import re

from parley.errors import Invalid
from parley.json_values import MAX_CANONICAL_DEPTH, Json

REDACTED = "[REDACTED]"
EMAIL = "[REDACTED_EMAIL]"
PHONE = "[REDACTED_PHONE]"
MOST_SHOWN = 80
_LOOKED_AT = 64 * 1024
"""Characters of a text that are read for a preview. More would only be needed after a secret of this length."""

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
"""The name of a secret followed by its value, as in error messages: `password=…`, `"api_key": "…"`."""
_LOGIN_IN_URL = re.compile(r"(?<=://)[^\s/:@]{0,200}+:[^\s/@]{1,200}+(?=@)", re.ASCII)
_EMAIL = re.compile(r"(?<![\w.%+-])[\w.%+-]++@(?:[\w-]++\.)+[^\W\d_]{2,}+")
_ADDRESS_RUN = re.compile(r"[\w.%+@-]++")
"""All characters that can be next to an address without a break. Matches do not overlap, so the rest of one cannot
become another."""
_PHONE = re.compile(r"\+\d(?:[ ().-]{0,2}+\d){7,}+|(?<![\w+.-])\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}(?![\w-])", re.ASCII)


def sanitised(value: Json, *, personal: bool = True) -> Json:
    """Return the value without secrets, recognised by the names of members and by the form of texts. `personal`: also
    remove addresses and telephone numbers of people."""
    return _sanitised(value, personal, 1)


def sanitised_text(text: str, *, personal: bool = True) -> str:
    text = _SECRET.sub(REDACTED, text)
    if not personal:
        return text
    without = _PHONE.sub(PHONE, _ADDRESS_RUN.sub(_without_address, text))
    # A secret next to a number can be recognised only after the number is removed.
    return text if without == text else _SECRET.sub(REDACTED, without)


def _without_address(run: re.Match[str]) -> str:
    if "@" not in run[0] or _EMAIL.search(run[0]) is None:
        return run[0]
    return EMAIL + run[0][len(run[0].rstrip(".%+-")) :]


def sanitised_error(text: str) -> str:
    """Return the text of an error without secrets, recognised by their form and by the names before them. Only for
    errors: other texts may mention passwords without containing any."""
    text = _LOGIN_IN_URL.sub(REDACTED, _PROVIDER_KEY.sub(REDACTED, sanitised_text(text, personal=False)))
    return _NAMED_SECRET.sub(lambda found: f"{found[1]}{REDACTED}", text)


def is_secret(name: str) -> bool:
    """Return whether a member of this name holds a secret, in any style of writing the name."""
    plain = _HUMP.sub("_", name).replace("-", "_").lower()
    return plain in _SECRET_NAMES or plain.endswith(_SECRET_ENDS)


def _sanitised(value: Json, personal: bool, depth: int) -> Json:
    if depth > MAX_CANONICAL_DEPTH:
        raise Invalid(f"The value is nested deeper than {MAX_CANONICAL_DEPTH} levels.")
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
    """Return the beginning of a text for a log: in one line, without secrets and personal addresses."""
    whole = " ".join(text[:_LOOKED_AT] for text in texts)[:_LOOKED_AT]
    line = "".join(one if one.isprintable() else " " for one in sanitised_text(whole))
    line = " ".join(line.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
