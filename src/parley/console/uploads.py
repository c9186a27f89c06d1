"""Forms with files (`multipart/form-data`), as browsers send them."""

import re

from msgspec import Struct

from parley.errors import Invalid
from parley.runs.rules.content import Part

MOST_PARTS = 100
"""Fields and files of one form."""
_BOUNDARY = re.compile(r'boundary="?([^";,\s]{1,70})"?')
_NAME = re.compile(rb'[;\s]name="([^"]*)"')
_FILE = re.compile(rb'[;\s]filename="([^"]*)"')
_MEDIA = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}")


class UploadForm(Struct, frozen=True):
    fields: dict[str, str]
    files: list[Part]


def parse_multipart(content_type: str, body: bytes) -> UploadForm:
    """Read a form. A file without a name and without content is a field in which no file was chosen."""
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise Invalid("The form has no boundary.")
    pieces = (b"\r\n" + body).split(b"\r\n--" + found[1].encode())
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        raise Invalid("The form is not complete.")
    if len(pieces) > MOST_PARTS + 2:
        raise Invalid(f"A form may have at most {MOST_PARTS} fields and files.")
    form = UploadForm({}, [])
    for piece in pieces[1:-1]:
        head, _, content = piece.partition(b"\r\n\r\n")
        name = _NAME.search(head)
        if name is None:
            raise Invalid("A field of the form has no name.")
        file = _FILE.search(head)
        if file is None:
            form.fields[_text(name[1])] = _text(content)
        elif file[1] or content:
            form.files.append(_file(file[1], _header(head, b"content-type"), content))
    return form


def _file(name: bytes, media: str, content: bytes) -> Part:
    # Some browsers send a path.
    shown = _text(name).replace("%22", '"').replace("\\", "/").rpartition("/")[2]
    media = media.partition(";")[0].strip().lower()
    return Part(raw=content, filename=shown[:255] or "file", media_type=media if _MEDIA.fullmatch(media) else None)


def _header(head: bytes, name: bytes) -> str:
    for line in head.split(b"\r\n"):
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.decode("latin-1")
    return ""


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Invalid("The form must be UTF-8.") from None
