"""More bodies are declared than the pool of request bodies holds, on many HTTP/2 connections, each
another client; a few KiB of each arrive, and none ends. What is beyond the pool is refused, memory
stays bounded, and other clients' requests go on as soon as there is room."""

from lib.http2 import Client
from lib.world import TLS, World, eventually, read, require

CONNECTIONS = 140
STREAMS = 16
BODY = 65_536
# The pool of request bodies.
POOL = 128 << 20
# What a connection may send of bodies that are not in the pool, TLS, and what HTTP/2 needs.
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


def main():
    with World(GATEWAY) as world:
        before = world.resident()
        held = [begin(world, number) for number in range(CONNECTIONS)]
        statuses = [status for attacker in held for status in outcomes(attacker)]
        require(set(statuses) == {503}, f"beyond the pool, bodies are refused: {set(statuses)}")
        begun = CONNECTIONS * STREAMS - len(statuses)
        require(begun <= POOL // BODY, f"{begun} bodies of {BODY} bytes are begun")
        grown = world.resident() - before
        bound = CONNECTIONS * PER_CONNECTION
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
    for _ in range(STREAMS):
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
