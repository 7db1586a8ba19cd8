"""One client asks for 64 answers of 4 MiB and reads none, over HTTP/1 and over HTTP/2. It gets its
share of the memory for answers, everyone else's large reads go on, and it is disconnected. The same
holds while a slow node is still sending those answers."""

import json
import socket
import threading

from lib.attack import HTTP1, HTTP2, Attack
from lib.http2 import Client
from lib.world import LARGE, TLS, World, ask, eventually, node_answer, read, request, require

SHARE = 16 << 20
GATEWAY = """
[server]
answer_memory = "64 MiB"
[gateway]
listen = "127.0.0.1:0"
[gateway.cache]
enabled = false
"""
HELD = "portcullis_answer_memory_bytes"


def others_read(world, connect, round_):
    """Clients read large answers one after the other, whole."""
    for number in range(8):
        connection = connect()
        client = f"198.51.100.{number}"
        call = read(0x9000 + 64 * round_ + number)
        status, _, body = ask(connection, b"POST", b"/rpc", call, client)
        connection.close()
        require(status == 200, f"another client's large read is {status}")
        require(len(body) > LARGE, "it is whole")


def over_http1():
    with World(GATEWAY) as world:
        held = [world.connect("gateway", receive=4096) for _ in range(64)]
        for number, connection in enumerate(held):
            connection.sendall(request(b"POST", b"/rpc", read(0x1000 + number)))
        for connection in held:
            connection.recv(1, socket.MSG_PEEK)  # each is answered or refused
        require(world.metric(HELD) >= LARGE, "the attacker's answers wait to be read")
        for round_ in range(3):
            others_read(world, lambda: world.connect("gateway"), round_)
            # what others hold for a moment is over
            eventually("it has a quarter", lambda: world.metric(HELD) <= SHARE + 64)
        eventually("who does not read is disconnected", lambda: world.metric(HELD) == 0)


def over_http2():
    with World(GATEWAY + TLS.format("gateway")) as world:
        attacker = Client(world.secure("gateway"), window=0, reads=False)
        streams = [
            attacker.post("/rpc", read(0x1000 + number), client="192.0.2.1") for number in range(64)
        ]
        outcomes = [attacker.outcome(stream) for stream in streams]
        begun = outcomes.count(200)
        require(1 <= begun <= SHARE // LARGE, f"{begun} answers are begun: {set(outcomes)}")
        for round_ in range(3):
            others_read(world, lambda: world.secure("gateway", "http/1.1"), round_)
            eventually("it has a quarter", lambda: world.metric(HELD) <= SHARE + 64)
        eventually("who does not read is disconnected", lambda: world.metric(HELD) == 0)


def while_they_are_fetched():
    released = threading.Event()

    def slow_for_the_attacker(path, body):
        answer = node_answer(path, body)
        params = json.loads(body)["params"]
        number = int(params["transaction_hash"], 16) if "transaction_hash" in params else 0
        return (answer, released.wait) if 0x5000 <= number < 0x6000 else answer

    with World(GATEWAY) as world:
        world.node.answer = slow_for_the_attacker
        held = [world.connect("gateway") for _ in range(64)]
        for number, connection in enumerate(held):
            connection.sendall(request(b"POST", b"/rpc", read(0x5000 + number)))
        eventually("it has its quarter", lambda: world.metric(HELD) >= SHARE - LARGE)
        for round_ in range(3):
            others_read(world, lambda: world.connect("gateway"), round_)
            eventually("it has a quarter", lambda: world.metric(HELD) <= SHARE + 64)
        released.set()
        outcomes = [connection.recv(12) for connection in held]
        answered = outcomes.count(b"HTTP/1.1 200")
        require(1 <= answered <= SHARE // LARGE, f"{answered} are answered")
        refused = outcomes.count(b"HTTP/1.1 429")
        require(answered + refused == 64, f"the others are refused: {set(outcomes)}")


ATTACK = Attack(
    title="slow readers",
    published="slow read",
    over=(HTTP1, HTTP2),
    checks=(over_http1, over_http2, while_they_are_fetched),
    also="a quarter of the memory for answers, and 10 s without progress",
)
