"""Bodies that arrive byte by byte and never end, on all connections that a client may have. Then
more bodies are declared than the pool of request bodies holds, on many HTTP/2 connections, each
another client; a few KiB of each arrive, and none ends. What is beyond the pool is refused, memory
stays bounded, and other clients' requests go on as soon as there is room."""

from lib.attack import HTTP1, HTTP2, TLS1, Attack, Case
from lib.frames import DATA, frame, literal, post
from lib.frames import request as stream_request
from lib.http2 import Client
from lib.world import TLS, World, eventually, read, require

CONNECTIONS = 256
STREAMS = 10
BODY = 65_536
TIMES = 'body_timeout = "2s"'

POOL_CONNECTIONS = 140
POOL_STREAMS = 16
# The pool of request bodies.
POOL = 128 << 20
# For a connection: bodies under way that are not in the pool, TLS, and HTTP/2.
PER_CONNECTION = 600 << 10

GATEWAY = f"""
[gateway]
listen = "127.0.0.1:0"
[gateway.cache]
enabled = false
[gateway.connections]
body_timeout = "5m"
{TLS.format("gateway")}
"""


def dribble(attacker, begin, byte):
    held = [begin(at) for at in range(CONNECTIONS)]
    while attacker.goes_on():
        for at, wire in enumerate(held):
            if wire and not wire.is_gone:
                wire.read()
                wire.offer(byte)
            if wire and answered(wire):
                attacker.count("ended")
                wire.close()
            if not wire or wire.is_gone:
                held[at] = begin(at)
        attacker.pause(0.2)


def answered(wire):
    """Whether the program has given up waiting for the body."""
    return wire.is_gone or wire.answers() > 0


def over_http1(attacker):
    head = (b"POST /rpc HTTP/1.1\r\nHost: edge.test\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % BODY)

    def begin(at):
        wire = attacker.http1(at)
        if wire:
            wire.send(head)
        return wire

    dribble(attacker, begin, b" ")


def in_chunks(attacker):
    """Without a length, in chunks of one byte."""
    head = (b"POST /rpc HTTP/1.1\r\nHost: edge.test\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n")

    def begin(at):
        wire = attacker.http1(at)
        if wire:
            wire.send(head)
        return wire

    dribble(attacker, begin, b"1\r\n \r\n")


def over_http2(attacker):
    head = post(fields=literal(b"content-length", b"%d" % BODY))

    def begin(at):
        wire = attacker.http2(at=at)
        if wire:
            streams = wire.streams(STREAMS)
            wire.send(b"".join(stream_request(stream, head, ends=False) for stream in streams))
        return wire

    dribble(attacker, begin, frame(DATA, 0, 1, b" "))


def the_pool_is_full():
    with World(GATEWAY) as world:
        before = world.resident()
        held = [begin(world, number) for number in range(POOL_CONNECTIONS)]
        statuses = [status for attacker in held for status in outcomes(attacker)]
        require(set(statuses) == {503}, f"beyond the pool, bodies are refused: {set(statuses)}")
        begun = POOL_CONNECTIONS * POOL_STREAMS - len(statuses)
        require(begun <= POOL // BODY, f"{begun} bodies of {BODY} bytes are begun")
        grown = world.resident() - before
        bound = POOL_CONNECTIONS * PER_CONNECTION
        require(grown <= bound, f"{grown >> 20} MiB more, over {bound >> 20} MiB")
        other = Client(world.secure("gateway"))
        meanwhile = {ask(other) for _ in range(20)}
        require(meanwhile <= {200, 503}, f"another client meanwhile: {meanwhile}")
        for attacker in held:
            attacker.socket.close()
        eventually("another client is answered", lambda: ask(other) == 200)


def ask(client):
    return client.outcome(client.post("/rpc", read(), client="198.51.100.1"))


def begin(world, number):
    """A connection of another client, with its bodies."""
    attacker = Client(world.secure("gateway"))
    attacker.step(1)
    fields = [("content-type", "application/json"), ("content-length", str(BODY))]
    for _ in range(POOL_STREAMS):
        client = f"192.0.2.{number}"
        stream = attacker.begin("POST", "/rpc", client=client, fields=fields, end=False)
        attacker.h2.send_data(stream, b" " * 4_000)
    attacker.flush()
    return attacker


def outcomes(attacker):
    """The responses so far; a read of its own shows that all before it were judged."""
    fine = attacker.begin("GET", "/healthz", client="198.51.100.2")
    require(attacker.outcome(fine) == 200, "the connection itself goes on")
    return [status for stream, status in attacker.statuses.items() if stream != fine]


ATTACK = Attack(
    title="slow bodies",
    published="R-U-Dead-Yet",
    cases=(
        Case("byte by byte", HTTP1, over_http1, {"ended": CONNECTIONS}, connections=TIMES),
        Case("chunks of one byte", HTTP1, in_chunks, {"ended": CONNECTIONS}, connections=TIMES,
             is_long=True),
        Case("byte by byte", TLS1, over_http1, {"ended": CONNECTIONS}, connections=TIMES,
             is_long=True),
        Case("byte by byte", HTTP2, over_http2, {"ended": CONNECTIONS}, connections=TIMES),
    ),
    checks=(the_pool_is_full,),
    also="a pool of 128 MiB for the bodies of all clients",
)
