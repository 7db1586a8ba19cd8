"""A connection of an attacker: it sends bytes as they are, as fast as they are taken, and reads
what arrives meanwhile, or nothing at all."""

import select
import socket
import ssl
import struct
import time

# How long an attacker waits for a program that takes or sends nothing.
PATIENCE = 45
# Reads at a time: more than a TLS record, so that one call takes what has arrived.
PIECE = 1 << 18


class Wire:
    """A socket that blocks neither side; `is_gone` once the connection is over."""

    def __init__(self, one, reads=True):
        one.setblocking(False)
        self.socket, self.reads, self.is_gone = one, reads, False
        # The unsent rest of the last piece.
        self.left = memoryview(b"")

    def arrived(self, data):
        """Takes what arrived; a protocol overrides it."""

    def send(self, data, until=None):
        """Sends all of it, reading what arrives meanwhile. Returns whether it was sent before
        `until` and before the connection was over."""
        view = memoryview(data)
        until = until or time.monotonic() + PATIENCE
        while view and not self.is_gone:
            taken = self.offer(view)
            view = view[taken:]
            if self.reads:
                self.read()
            if view and not taken:
                if time.monotonic() > until:
                    return False
                self.wait(0.1, writes=True)
        return not self.is_gone

    def offer(self, data):
        """Sends as much as is taken at once; returns how many bytes that is."""
        try:
            return self.socket.send(data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except OSError:
            self.close()
            return 0

    def go_on(self, piece):
        """Sends what is left of the last piece as far as it is taken at once, or of the piece that
        this function makes. Returns the bytes that were taken, and whether that ended the piece."""
        if not self.left:
            self.left = memoryview(piece())
        taken = self.offer(self.left)
        self.left = self.left[taken:]
        return taken, not self.left

    def read(self):
        """Takes all that has arrived; returns whether anything had."""
        found = False
        while not self.is_gone:
            try:
                data = self.socket.recv(PIECE)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except OSError:
                data = b""
            if not data:
                self.close()
                break
            found = True
            self.arrived(data)
        return found

    def wait(self, seconds, writes=False):
        """Waits until something arrives, or can be written."""
        if not self.is_gone:
            select.select([self.socket] if self.reads else [], [self.socket] if writes else [], [],
                          seconds)

    def close(self):
        self.is_gone = True
        self.socket.close()

    def abort(self):
        """Ends the connection with a reset."""
        if not self.is_gone:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close()


class Http1(Wire):
    """Counts the responses of an HTTP/1 connection by their status."""

    def __init__(self, one, reads=True):
        super().__init__(one, reads)
        self.statuses, self.tail = {}, b""

    def arrived(self, data):
        # a status line that is cut is found with the rest of it
        pieces = (self.tail + data).split(b"HTTP/1.1 ")
        for piece in pieces[1:]:
            if len(piece) >= 3:
                status = int(piece[:3])
                self.statuses[status] = self.statuses.get(status, 0) + 1
        last = pieces[-1]
        cut = len(pieces) > 1 and len(last) < 3
        self.tail = b"HTTP/1.1 " + last if cut else (last if len(pieces) == 1 else b"")[-9:]

    def answers(self):
        return sum(self.statuses.values())
