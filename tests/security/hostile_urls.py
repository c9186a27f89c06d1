"""Addresses that somebody might give us so that we call what only we can reach, in every disguise that we know of.

`{p}` is the port of a listener on this machine: whichever way an address leads here, the listener sees it.
"""

from msgspec import Struct

OUTSIDE = "93.184.216.34"
"""A public address, which no test connects to."""

_HERE = (
    # IPv4 in all the ways in which it can be written
    "http://127.0.0.1:{p}/", "https://127.0.0.1:{p}/", "HTTP://127.0.0.1:{p}/", "http://127.1:{p}/",
    "http://127.0.1:{p}/", "http://2130706433:{p}/", "http://0x7f000001:{p}/", "http://0X7F000001:{p}/",
    "http://0x7f.0.0.1:{p}/", "http://0x7f.1:{p}/", "http://0177.0.0.1:{p}/", "http://017700000001:{p}/",
    "http://127.000.000.001:{p}/", "http://127.0.0.1.:{p}/", "http://127.0.0.1..:{p}/", "http://127.255.255.254:{p}/",
    "http://0:{p}/", "http://0.0.0.0:{p}/", "http://00000000:{p}/", "http://0x0:{p}/", "http://4294967296:{p}/",
    "http://6425673729:{p}/", "http://127.0.0.1.example\x00.org:{p}/",
    # digits, dots and letters that are not those of ASCII
    "http://１２７.０.０.１:{p}/", "http://127。0。0。1:{p}/", "http://127．0．0．1:{p}/", "http://①②⑦.⓪.⓪.①:{p}/",
    "http://١٢٧.٠.٠.١:{p}/", "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ:{p}/", "http://ｌｏｃａｌｈｏｓｔ:{p}/", "http://loc\u00adalhost:{p}/",
    # names that every machine has
    "http://localhost:{p}/", "http://LOCALHOST:{p}/", "http://localhost.:{p}/", "http://any.localhost:{p}/",
    "http://any.localhost.:{p}/",
    # IPv6, plain and with an IPv4 address in it
    "http://[::1]:{p}/", "http://[0:0:0:0:0:0:0:1]:{p}/", "http://[0000::0001]:{p}/", "http://[::]:{p}/",
    "http://[::ffff:127.0.0.1]:{p}/", "http://[::ffff:7f00:1]:{p}/", "http://[::ffff:0.0.0.0]:{p}/",
    "http://[::127.0.0.1]:{p}/", "http://[::ffff:0:127.0.0.1]:{p}/", "http://[64:ff9b::127.0.0.1]:{p}/",
    "http://[64:ff9b:1::7f00:1]:{p}/", "http://[2002:7f00:1::]:{p}/", "http://[2001:0:7f00:1::]:{p}/",
    "http://[2001:0:0:0:0:0:80ff:fffe]:{p}/", "http://[::1%25lo]:{p}/", "http://[::1%lo]:{p}/",
    "http://[fe80::1%25lo]:{p}/", "http://[::1%]:{p}/", "http://[v1.127.0.0.1]:{p}/", "http://::1:{p}/",
    # who is asked, and who only seems to be
    "http://example.com@127.0.0.1:{p}/", "http://example.com:80@127.0.0.1:{p}/", "http://u:p@127.0.0.1:{p}/",
    "http://127.0.0.1:{p}@example.com/", "http://127.0.0.1:{p}#@example.com/", "http://127.0.0.1:{p}?@example.com/",
    "http://127.0.0.1:{p}\\@example.com/", "http://example.com\\@127.0.0.1:{p}/",
    "http://example.com%40127.0.0.1:{p}/", "http://@127.0.0.1:{p}/", "http://:@127.0.0.1:{p}/",
    # what parsers decode, drop or mend
    "http://127%2e0%2e0%2e1:{p}/", "http://%31%32%37.0.0.1:{p}/", "http://127.0.0.1%2f.example.com:{p}/",
    " http://127.0.0.1:{p}/", "http://127.0.0.1\t:{p}/", "http://127.0.\n0.1:{p}/", "ht\ntp://127.0.0.1:{p}/",
    "http://\r\n127.0.0.1:{p}/", "http:127.0.0.1:{p}/", "http:/127.0.0.1:{p}/", "http:///127.0.0.1:{p}/",
    "http:\\\\127.0.0.1:{p}/", "//127.0.0.1:{p}/", "127.0.0.1:{p}/",
    # ports
    "http://127.0.0.1:0{p}/", "http://127.0.0.1:+{p}/", "http://127.0.0.1:{p}:80/", "http://127.0.0.1:/",
    "http://127.0.0.1:99999/", "http://127.0.0.1:-1/", "http://127.0.0.1:0/", "http://127.0.0.1: {p}/",
    # schemes
    "ftp://127.0.0.1:{p}/", "gopher://127.0.0.1:{p}/_GET", "dict://127.0.0.1:{p}/", "ldap://127.0.0.1:{p}/",
    "ws://127.0.0.1:{p}/", "grpc://127.0.0.1:{p}/", "tcp://127.0.0.1:{p}/", "file:///etc/passwd",
    "file://127.0.0.1:{p}/", "unix:///tmp/s", "http+unix://%2ftmp%2fs/", "data:,x", "javascript:1",
    "jar:http://127.0.0.1:{p}/", "url:http://127.0.0.1:{p}/", "",
)  # fmt: skip

_ELSEWHERE = (
    # networks of ours
    "http://10.0.0.1/", "http://167772161/", "http://0xa000001/", "http://012.0.0.1/", "http://172.16.0.1/",
    "http://172.31.255.255/", "http://192.168.0.1/", "http://192.168.1/", "http://100.64.0.1/", "http://198.18.0.1/",
    "http://192.0.2.1/", "http://224.0.0.1/", "http://240.0.0.1/", "http://255.255.255.255/", "http://[fc00::1]/",
    "http://[fd12:3456::1]/", "http://[fe80::1]/", "http://[fec0::1]/", "http://[ff02::1]/", "http://[2001:db8::1]/",
    "http://[100::1]/", "http://[3fff::1]/", "http://[::ffff:10.0.0.1]/", "http://[64:ff9b::10.0.0.1]/",
    "http://[2002:a00:1::]/",
    # where clouds tell their machines secrets
    "http://169.254.169.254/latest/meta-data/", "http://2852039166/", "http://0xa9fea9fe/",
    "http://0251.0376.0251.0376/", "http://169.254.43518/", "http://169.254.170.2/v2/credentials",
    "http://168.63.129.16/", "http://192.0.0.192/", "http://100.100.100.200/", "http://[fd00:ec2::254]/",
    "http://[::ffff:169.254.169.254]/", "http://[64:ff9b::a9fe:a9fe]/", "http://[2002:a9fe:a9fe::]/",
)  # fmt: skip

NAMES: dict[str, tuple[list[str], ...]] = {
    "loop.example": (["127.0.0.1"],),
    "loop6.example": (["::1"],),
    "zero.example": (["0.0.0.0"],),
    "mapped.example": (["::ffff:127.0.0.1"],),
    "nat64.example": (["64:ff9b::7f00:1"],),
    "scoped.example": (["fe80::1%1"],),
    "inside.example": (["10.0.0.7"],),
    "unique.example": (["fd00::7"],),
    "cloud.example": (["169.254.169.254"],),
    "metadata.google.internal": (["169.254.169.254"],),
    "127.0.0.1.wild.example": (["127.0.0.1"],),
    "ip6-localhost": (["::1"],),
    "localhost.localdomain": (["127.0.0.1"],),
    "both.example": (["10.0.0.7", "127.0.0.1"],),
    "outside-first.example": ([OUTSIDE, "127.0.0.1"],),
    "inside-first.example": (["127.0.0.1", OUTSIDE],),
    "rebound.example": ([OUTSIDE], ["127.0.0.1"]),
    "rebound-mixed.example": ([OUTSIDE], [OUTSIDE, "127.0.0.1"]),
    "rebound-late.example": ([OUTSIDE], [OUTSIDE], ["127.0.0.1"]),
}
"""Answers of a hostile name server: the next one each time, then the last again."""

FRIEND = "friend.example"
"""A name that an operator allows; it is on this machine, too."""

REBOUND = frozenset(("rebound.example", "rebound-mixed.example", "rebound-late.example"))
"""Names that resolve to a harmless address the first time."""


class Hostile(Struct, frozen=True):
    url: str
    first_harmless: bool = False


def hostile(port: int) -> list[Hostile]:
    """The whole table, for a listener at this port."""
    written = [Hostile(url.replace("{p}", str(port))) for url in (*_HERE, *_ELSEWHERE)]
    named = [Hostile(f"http://{name}:{port}/", name in REBOUND) for name in NAMES]
    spelt = [Hostile(f"http://{host}:{port}/x") for host in ("LOOP.Example", "loop.example.", "Inside.EXAMPLE.")]
    return [*written, *named, *spelt]
