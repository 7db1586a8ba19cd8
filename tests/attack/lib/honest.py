#!/usr/bin/env python3
"""The process of honest clients: reads at a steady rate, from many addresses of which none sends
more than it may. Every tenth request of an address is on a new connection.

For each line of its input it sends a window of requests, and prints the wait of the slowest but one
in a hundred, and every status that is not 200. A request's wait is counted from when it was due."""

import json
import math
import os
import socket
import ssl
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from .wire import PATIENCE
from .world import read, request, response

# Honest addresses are 127.0.9.1 and following: each sends 150 requests a minute at most.
NETWORK, ADDRESSES = "127.0.9.", 80
RATE = 200
NEW = 10
# Requests at a time: each address has one. Fewer would delay each other in a slow build: 200 requests
# a second that wait 300 ms each are 60 at a time.
CLIENTS = ADDRESSES
# Seconds behind the last request's time, after which a window is over.
LATE = 1


def quantile(values, share):
    """The least of these values that this share of them does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


class Honest:
    """One address and its connection."""

    def __init__(self, address, source, tls):
        self.address, self.source, self.tls = address, source, tls
        self.connection, self.sent = self.connect(), 0

    def connect(self):
        one = socket.socket()
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.settimeout(PATIENCE)
        one.bind((self.source, 0))
        one.connect(self.address)
        return self.tls.wrap_socket(one) if self.tls else one

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def ask(self):
        """One request; returns its status, 0 if there is no response."""
        self.sent += 1
        try:
            if self.sent % NEW == 0:
                self.close()
            if not self.connection:
                self.connection = self.connect()
            self.connection.sendall(request(b"POST", b"/rpc", read()))
            status, fields, _ = response(self.connection)
            if fields.get("connection") == "close":
                self.close()
            return status
        except (EOFError, OSError):
            self.close()
            return 0


def window(clients, number):
    """A window of this many requests, each due after the one before. What is not sent when it is
    over has waited until then."""
    start = time.monotonic()
    end = start + number / RATE + LATE

    def send(first):
        """The requests of one address: their waits, and their statuses."""
        found = []
        for at in range(first, number, CLIENTS):
            due = start + at / RATE
            time.sleep(max(0, due - time.monotonic()))
            status = clients[at % len(clients)].ask() if time.monotonic() < end else 200
            found.append((time.monotonic() - due, status))
        return found

    with ThreadPoolExecutor(CLIENTS) as pool:
        sent = [one for found in pool.map(send, range(CLIENTS)) for one in found]
    statuses = [status for _, status in sent if status != 200]
    failed = {status: statuses.count(status) for status in set(statuses)}
    return {"p99": quantile([wait for wait, _ in sent], 0.99), "failed": failed}


def main(host, port, is_secure):
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(0, set(cores[1:]))
    # a thread that has something to send does not wait long for one that parses
    sys.setswitchinterval(0.0005)
    tls = None
    if is_secure == "secure":
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        tls.set_alpn_protocols(["http/1.1"])
    sources = [f"{NETWORK}{1 + at}" for at in range(ADDRESSES)]
    clients = [Honest((host, int(port)), source, tls) for source in sources]
    for line in sys.stdin:
        print(json.dumps(window(clients, int(line))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
