"""Forms with files are read as browsers send them; anything else is refused."""

import pytest

from parley.console.uploads import MOST_PARTS, parse_multipart
from parley.errors import Invalid

TYPE = "multipart/form-data; boundary=----b"


def body(*pieces: tuple[str, bytes]) -> bytes:
    made = b"".join(f"------b\r\n{head}\r\n\r\n".encode() + content + b"\r\n" for head, content in pieces)
    return made + b"------b--\r\n"


def field(name: str, content: bytes) -> tuple[str, bytes]:
    return f'Content-Disposition: form-data; name="{name}"', content


def file(name: str, media: str, content: bytes) -> tuple[str, bytes]:
    return f'Content-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: {media}', content


def test_fields_and_files_come_apart() -> None:
    raw = bytes(range(256)) + b"\r\n--not-the-end\r\n\r\n"
    form = parse_multipart(TYPE, body(field("text", "Grüße\r\n".encode()), file("a.bin", "image/png", raw)))
    assert form.fields == {"text": "Grüße\r\n"}
    (part,) = form.files
    assert (part.raw, part.filename, part.media_type) == (raw, "a.bin", "image/png")


def test_a_field_without_a_chosen_file_is_no_file() -> None:
    assert parse_multipart(TYPE, body(file("", "application/octet-stream", b""))).files == []


@pytest.mark.parametrize(
    ("name", "media", "shown", "kind"),
    [
        ("C:\\\\fake\\\\cat.png", "image/png", "cat.png", "image/png"),
        ("../../etc/passwd", "text/plain; charset=utf-8", "passwd", "text/plain"),
        ("%22quoted%22.txt", "nonsense", '"quoted".txt', None),
        ("x" * 400, "text/html", "x" * 255, "text/html"),
        ("dir/", "", "file", None),
    ],
)
def test_a_name_is_only_a_name(name: str, media: str, shown: str, kind: str | None) -> None:
    (part,) = parse_multipart(TYPE, body(file(name, media, b"x"))).files
    assert (part.filename, part.media_type) == (shown, kind)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("multipart/form-data", body(field("a", b"b"))),
        (TYPE, b""),
        (TYPE, body(field("a", b"b"))[:-6]),
        (TYPE, body(("Content-Type: text/plain", b"b"))),
        (TYPE, body(field("a", b"\xff"))),
        (TYPE, body(*[field("a", b"b")] * (MOST_PARTS + 1))),
    ],
)
def test_a_form_that_cannot_be_read_is_refused(kind: str, content: bytes) -> None:
    with pytest.raises(Invalid):
        parse_multipart(kind, content)
