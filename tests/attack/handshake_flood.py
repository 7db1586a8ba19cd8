"""TLS handshakes: whole ones as fast as they are served, the cheapest for the client; halves, after
which the client is silent; and bytes that are no handshake at all."""

import ssl

from lib.attack import TLS1, Attack, Case
from lib.wire import Wire

CONNECTIONS = 256
TIMES = 'header_timeout = "2s"'


def whole(attacker):
    while attacker.goes_on():
        wire = attacker.http1()
        if wire:
            attacker.count("handshakes")
            wire.abort()


def client_hello(attacker):
    """The first bytes of a client, as its library makes them."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = attacker.tls.wrap_bio(incoming, outgoing)
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def hold(attacker, bytes_):
    """Sends these bytes on each connection and nothing more; counts those that are ended."""
    def begin(at):
        wire = Wire(attacker.tcp(at))
        wire.send(bytes_)
        attacker.count("halves")
        return wire

    held = [begin(at) for at in range(CONNECTIONS)]
    while attacker.goes_on():
        for at, wire in enumerate(held):
            wire.read()
            if wire.is_gone:
                attacker.count("ended")
                held[at] = begin(at)
        attacker.pause(0.1)


def silent(attacker):
    """The program has answered, which costs it a signature, and waits for the client."""
    hold(attacker, client_hello(attacker))


def cut(attacker):
    hold(attacker, client_hello(attacker)[:100])


def at_full_speed(attacker):
    """The first bytes on one connection after the other, each reset once it is answered."""
    hello = client_hello(attacker)
    while attacker.goes_on():
        wire = Wire(attacker.tcp())
        wire.offer(hello)
        while not wire.is_gone and not wire.read():
            wire.wait(1)
        attacker.count("halves")
        wire.abort()


def noise(attacker):
    while attacker.goes_on():
        wire = Wire(attacker.tcp())
        wire.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xff" * 508)
        while not wire.is_gone:
            wire.wait(1)
            wire.read()
        attacker.count("ended")


ATTACK = Attack(
    title="handshake flood",
    published="CVE-2011-1473",
    cases=(
        Case("whole", TLS1, whole, {"handshakes": 500}),
        Case("halves at full speed", TLS1, at_full_speed, {"halves": 1_000}),
        Case("halves, silent", TLS1, silent, {"ended": CONNECTIONS}, connections=TIMES),
        Case("cut", TLS1, cut, {"ended": CONNECTIONS}, connections=TIMES,
             is_long=True),
        Case("noise", TLS1, noise, {"ended": 500}, is_long=True),
    ),
)
