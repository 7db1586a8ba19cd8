#!/usr/bin/env python3
"""The process of an attacker: runs one case on a core of its own until its input ends.

Prints `under way` once the counts that the case demands are reached, and its counts at the end."""

import importlib
import json
import os
import resource
import select
import socket
import ssl
import sys
import threading
import time

from .attack import HTTP1, HTTP2
from .frames import Http2
from .wire import PATIENCE, Http1

# Attacking addresses are 127.0.7.1 and following.
NETWORK = "127.0.7."
FORWARDED = b"192.0.2.7"
# Bytes that are offered to a connection at a time.
POURED = 1 << 16


class Attacker:
    """The tools of a case: connections from its addresses, counts, and the signal to end."""

    def __init__(self, case, host, port):
        self.case, self.address = case, (host, port)
        self.counts, self.lock = {}, threading.Lock()
        self.is_under_way, self.stopped = False, threading.Event()
        self.tls = ssl.create_default_context()
        self.tls.check_hostname, self.tls.verify_mode = False, ssl.CERT_NONE
        self.tls.set_alpn_protocols(["h2" if case.over == HTTP2 else "http/1.1"])

    def goes_on(self):
        return not self.stopped.is_set()

    def pause(self, seconds):
        """For attacks that are slow."""
        self.stopped.wait(seconds)

    def count(self, what, number=1):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + number
            least = self.case.least.items()
            reached = all(self.counts.get(name, 0) >= demanded for name, demanded in least)
            if reached and not self.is_under_way:
                self.is_under_way = True
                print("under way", flush=True)

    def tcp(self, at=0, receive=None):
        """A connection without TLS from the attacking address number `at`."""
        one = socket.socket()
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        one.settimeout(PATIENCE)
        source = "127.0.0.1" if self.case.is_proxied else f"{NETWORK}{1 + at % self.case.addresses}"
        # the port is chosen by what it connects to, so that closed ones can be used again
        one.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
        one.bind((source, 0))
        one.connect(self.address)
        return one

    def open(self, at=0, receive=None):
        """A connection as the case speaks it; `None` if it is refused."""
        one = None
        try:
            one = self.tcp(at, receive)
            return one if self.case.over == HTTP1 else self.tls.wrap_socket(one)
        except OSError:
            if one is not None:
                one.close()
            self.count("refused")
            return None

    def http1(self, at=0, receive=None, reads=True):
        one = self.open(at, receive)
        return one and Http1(one, reads)

    def http2(self, *pairs, at=0, receive=None, reads=True):
        one = self.open(at, receive)
        return one and Http2(one, *pairs, reads=reads)

    def flood(self, connections, begin, piece, what="frames", number=1):
        """Sends pieces on many connections, as fast as they are taken. `begin(at)` begins one, also
        when it is over; `piece(wire, at)` makes the next bytes of one, which count as `number` of
        `what` once they are taken."""
        held = [None] * connections
        while self.goes_on():
            progress = 0
            for at, wire in enumerate(held):
                if wire is None or wire.is_gone:
                    wire = held[at] = begin(at)
                    self.count("connections")
                    progress += 1
                if wire is None:
                    continue
                taken, is_whole = wire.go_on(lambda: piece(wire, at))
                if wire.reads:
                    wire.read()
                if is_whole:
                    self.count(what, number)
                progress += taken
            if not progress:
                open_ = [wire.socket for wire in held if wire and not wire.is_gone]
                reading = [wire.socket for wire in held if wire and wire.reads and not wire.is_gone]
                select.select(reading, open_, [], 0.05)

    def pour(self, connections, begin, piece, frames=1):
        """Floods with one piece, which has this number of frames."""
        times = max(1, POURED // len(piece))
        many = piece * times
        self.flood(connections, begin, lambda wire, at: many, number=frames * times)


def main(name, number, host, port):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if os.cpu_count() > 1:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    case = importlib.import_module(name).ATTACK.cases[int(number)]
    attacker = Attacker(case, host, int(port))

    def wait_for_the_end():
        sys.stdin.read()
        attacker.stopped.set()
        # what blocks is ended with the process
        time.sleep(PATIENCE)
        os._exit(1)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    case.run(attacker)
    print(json.dumps(attacker.counts), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
