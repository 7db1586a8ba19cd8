"""Connections that are opened and closed as fast as possible: without a byte, with a reset, after
one request, and more of them than a client may have."""

import time

from lib.attack import HTTP1, HTTP2, TLS1, Attack, Case, scale
from lib.frames import get
from lib.frames import request as stream_request
from lib.wire import Wire
from lib.world import request

# More than the 256 that a client may have.
TOO_MANY = 400
# Connections a second of a client that waits for no response. A debug build accepts little more,
# and every client waits until the connections before its own are accepted.
RATE = scale(2_000, 20_000)


def closed(attacker):
    while attacker.goes_on():
        Wire(attacker.tcp()).close()
        attacker.count("connections")


def aborted(attacker):
    due = time.monotonic()
    while attacker.goes_on():
        wire = Wire(attacker.tcp())
        wire.send(request(b"GET", b"/healthz"))
        wire.abort()
        attacker.count("connections")
        due += 1 / RATE
        attacker.pause(max(0, due - time.monotonic()))


def one_request(attacker):
    while attacker.goes_on():
        wire = attacker.http1()
        if wire and wire.send(request(b"GET", b"/healthz", close=True)):
            while not wire.is_gone:
                wire.wait(1)
                wire.read()
            attacker.count("connections")


def one_stream(attacker):
    while attacker.goes_on():
        wire = attacker.http2()
        if wire:
            wire.send(stream_request(1, get()))
            wire.ping()
            wire.settled()
            wire.close()
            attacker.count("connections")


def too_many(attacker):
    """Holds all connections that are accepted, and tries for more."""
    held = []
    while attacker.goes_on():
        wire = Wire(attacker.tcp())
        attacker.count("connections")
        held.append(wire)
        if len(held) > TOO_MANY:
            held.pop(0).close()


ATTACK = Attack(
    title="connection churn",
    published="CAPEC-125",
    cases=(
        Case("without a byte", HTTP1, closed, {"connections": 3_000}, is_long=True),
        Case("reset after a request", HTTP1, aborted, {"connections": 3_000}),
        Case("after one request", HTTP1, one_request, {"connections": 1_000}),
        Case("after one request", TLS1, one_request, {"connections": 300}, is_long=True),
        Case("after one stream", HTTP2, one_stream, {"connections": 300}),
        Case("over the cap", HTTP1, too_many, {"connections": 3_000}),
    ),
)
