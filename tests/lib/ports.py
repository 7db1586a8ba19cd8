"""Ports for servers that must know theirs before they listen, or keep it over restarts."""

import itertools
import socket
import threading
import time

LOCK = threading.Lock()
PORTS = itertools.count(20_000 + time.time_ns() % 8_000)


def free_port():
    """A free port below those that the kernel gives to others, each once."""
    with LOCK:
        for port in PORTS:
            with socket.socket() as listener:
                try:
                    listener.bind(("127.0.0.1", port))
                except OSError:
                    continue
                return port
