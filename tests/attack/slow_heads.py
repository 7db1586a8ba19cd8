"""Heads that arrive byte by byte and never end, on all connections that a client may have
("slowloris"): the connections end when a head's time is over, and others are served meanwhile."""

from lib.attack import HTTP1, HTTP2, TLS1, Attack, Case
from lib.frames import HEADERS, frame, get

CONNECTIONS = 256
# A head's time. What arrives within it is a few bytes.
TIMES = 'header_timeout = "2s"'


def dribble(attacker, begin, start, byte):
    """Sends a start on each connection, and then a byte on each in every round."""
    def first(at):
        wire = begin(at)
        if wire:
            wire.send(start)
        return wire

    held = [first(at) for at in range(CONNECTIONS)]
    while attacker.goes_on():
        for at, wire in enumerate(held):
            if wire and not wire.is_gone:
                wire.read()
                wire.offer(byte)
            if wire and wire.is_gone:
                attacker.count("ended")
            if not wire or wire.is_gone:
                held[at] = first(at)
        attacker.pause(0.2)


def over_http1(attacker):
    start = b"POST /rpc HTTP/1.1\r\nHost: edge.test\r\nX-Slow: "
    dribble(attacker, attacker.http1, start, b"x")


def over_http2(attacker):
    head = frame(HEADERS, 5, 1, get() + b"\x00\x06x-slow\x7f\xff\x7f" + b"x" * 16_000)
    dribble(attacker, lambda at: attacker.http2(at=at), head[:100], b"x")


ATTACK = Attack(
    title="slow heads",
    published="CVE-2007-6750",
    cases=(
        Case("byte by byte", HTTP1, over_http1, {"ended": CONNECTIONS}, connections=TIMES),
        Case("byte by byte", TLS1, over_http1, {"ended": CONNECTIONS}, connections=TIMES),
        Case("byte by byte", HTTP2, over_http2, {"ended": CONNECTIONS}, connections=TIMES),
    ),
)
