#!/usr/bin/env python3
"""The process of honest clients: reads at a steady rate, each from one of many addresses, of which
none sends more than it may. Every tenth request is on a new connection.

For each line of its input it sends a window of requests, and prints what they waited, and every
status that is not 200. A request's wait is counted from when it was due, so that one which blocks
those behind it counts for all of them."""

import json
import math
import os
import socket
import ssl
import sys
import time

from .wire import PATIENCE
from .world import read, request, response

# Honest addresses are 127.0.9.1 and following: each sends 150 requests a minute at most.
NETWORK, ADDRESSES = "127.0.9.", 80
RATE = 200
NEW = 10
# Seconds behind the last request's time, after which a window is over.
LATE = 1


def quantile(values, share):
    """The least of these values that this share of them does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


class Clients:
    """A connection of each address, once it is used."""

    def __init__(self, host, port, is_secure):
        self.address, self.held, self.sent = (host, port), {}, 0
        self.tls = None
        if is_secure:
            self.tls = ssl.create_default_context()
            self.tls.check_hostname, self.tls.verify_mode = False, ssl.CERT_NONE
            self.tls.set_alpn_protocols(["http/1.1"])
        self.bytes = request(b"POST", b"/rpc", read())

    def connect(self, at):
        one = socket.socket()
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.settimeout(PATIENCE)
        one.bind((f"{NETWORK}{1 + at}", 0))
        one.connect(self.address)
        return self.tls.wrap_socket(one) if self.tls else one

    def ask(self):
        """One request; returns its status, 0 if there is no response."""
        at, self.sent = self.sent % ADDRESSES, self.sent + 1
        one = self.held.get(at)
        try:
            if one is None or self.sent % NEW == 0:
                if one is not None:
                    one.close()
                one = self.held[at] = self.connect(at)
            one.sendall(self.bytes)
            status, fields, _ = response(one)
            if fields.get("connection") == "close":
                self.held.pop(at).close()
            return status
        except (EOFError, OSError):
            self.held.pop(at, None)
            return 0

    def window(self, number):
        """A window of this many requests. One that is far behind ends: what is not sent has waited
        until then."""
        failed, start = {}, time.monotonic()
        due = [start + sent / RATE for sent in range(number)]
        ended = []
        for instant in due:
            if time.monotonic() > due[-1] + LATE:
                break
            time.sleep(max(0, instant - time.monotonic()))
            status = self.ask()
            ended.append(time.monotonic())
            if status != 200:
                failed[status] = failed.get(status, 0) + 1
        ended += [time.monotonic()] * (number - len(ended))
        waits = [end - instant for end, instant in zip(ended, due)]
        return {"p50": quantile(waits, 0.5), "p99": quantile(waits, 0.99), "failed": failed}


def main(host, port, is_secure):
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(0, set(cores[1:]))
    clients = Clients(host, int(port), is_secure == "secure")
    for at in range(ADDRESSES):
        clients.held[at] = clients.connect(at)
    for line in sys.stdin:
        print(json.dumps(clients.window(int(line))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
