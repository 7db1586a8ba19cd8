"""Requests behind each other without waiting for a response, as fast as they are taken, by clients
that read and that do not."""

from lib.attack import HTTP1, HTTP2, TLS1, Attack, Case, scale
from lib.frames import get
from lib.frames import request as stream_request
from lib.world import read as call
from lib.world import request

CONNECTIONS = 16
SILENT = scale(128, 256)
BURST = 50


def flood(attacker, piece, reads=True):
    def begin(at):
        return attacker.http1(at, reads=reads)

    attacker.pour(CONNECTIONS if reads else SILENT, begin, piece)


def small(attacker):
    flood(attacker, request(b"GET", b"/healthz"))


def reads(attacker):
    flood(attacker, request(b"POST", b"/rpc", call()))


def unread(attacker):
    flood(attacker, request(b"GET", b"/healthz"), reads=False)


def over_http2(attacker):
    """Over HTTP/2 it is requests on streams."""
    def burst(wire, _):
        return b"".join(stream_request(stream, get()) for stream in wire.streams(BURST))

    attacker.flood(CONNECTIONS, lambda at: attacker.http2(at=at), burst, number=BURST)


ATTACK = Attack(
    title="pipelining flood",
    published="RFC 9112, section 9.3.2",
    cases=(
        Case("of small ones", HTTP1, small, {"frames": 20_000}),
        Case("of reads", HTTP1, reads, {"frames": 20_000}, is_long=True),
        Case("unread", HTTP1, unread, {"frames": 20_000}),
        Case("of small ones", TLS1, small, {"frames": 10_000}, is_long=True),
        Case("of streams", HTTP2, over_http2, {"frames": 5_000}),
    ),
)
