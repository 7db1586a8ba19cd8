"""HTTP/2 frames as bytes (RFC 9113, section 4.1), fields as bytes (RFC 7541), and a connection that
sends them as they are."""

import time

from .wire import PATIENCE, Wire

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 5, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED = 1, 1, 4, 8
# Identifiers of settings.
TABLE_SIZE, INITIAL_WINDOW = 1, 4
LARGEST_WINDOW = (1 << 31) - 1
# The largest frame that a program takes which has not allowed larger ones.
LARGEST_FRAME = 16_384
# The first entry of the dynamic table: the newest field.
NEWEST = 62


def frame(kind, flags, stream, payload=b""):
    return b"%b%b%b%b" % (
        len(payload).to_bytes(3, "big"), bytes((kind, flags)), stream.to_bytes(4, "big"), payload)


def settings(*pairs):
    payload = b"".join(name.to_bytes(2, "big") + value.to_bytes(4, "big") for name, value in pairs)
    return frame(SETTINGS, 0, 0, payload)


def window_update(stream, increment):
    return frame(WINDOW_UPDATE, 0, stream, increment.to_bytes(4, "big"))


def reset(stream, code=8):
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def integer(value, bits, first=0):
    """RFC 7541, section 5.1, with the bits in front of it in `first`."""
    most = (1 << bits) - 1
    if value < most:
        return bytes((first | value,))
    found, value = bytearray((first | most,)), value - most
    while value >= 128:
        found.append(value % 128 + 128)
        value //= 128
    found.append(value)
    return bytes(found)


def text(value):
    return integer(len(value), 7) + value


def stored(name, value):
    """A field that enters the dynamic table."""
    return b"\x40" + text(name) + text(value)


def literal(name, value):
    """A field that enters no table."""
    return b"\x00" + text(name) + text(value)


def indexed(at):
    return integer(at, 7, 0x80)


def get(path=b"/healthz", fields=b""):
    """The fields of a GET, none of them stored."""
    return b"\x82\x87\x01" + text(b"edge.test") + b"\x04" + text(path) + fields


def post(path=b"/rpc", fields=b""):
    """The fields of a POST with JSON, none of them stored."""
    return (b"\x83\x87\x01" + text(b"edge.test") + b"\x04" + text(path)
            + b"\x0f\x10" + text(b"application/json") + fields)


def request(stream, block, ends=True):
    """A whole head in one frame."""
    return frame(HEADERS, END_HEADERS | (END_STREAM if ends else 0), stream, block)


class Http2(Wire):
    """An HTTP/2 connection. Counts the frames that arrive by their kind."""

    def __init__(self, one, *pairs, reads=True):
        super().__init__(one, reads)
        self.counts, self.acknowledged, self.pings, self.rest = {}, 0, 0, b""
        # The next stream that is not yet used.
        self.next = 1
        self.send(PREFACE + settings(*pairs))

    def arrived(self, data):
        data = self.rest + data if self.rest else data
        at, end = 0, len(data)
        while end - at >= 9:
            length = int.from_bytes(data[at:at + 3], "big")
            if end - at < 9 + length:
                break
            kind, flags = data[at + 3], data[at + 4]
            self.counts[kind] = self.counts.get(kind, 0) + 1
            if kind == PING and flags & ACK:
                self.acknowledged += 1
            at += 9 + length
        self.rest = data[at:]

    def count(self, kind):
        return self.counts.get(kind, 0)

    def answers(self):
        """Responses, and streams that are reset."""
        return self.count(HEADERS) + self.count(RST_STREAM)

    def streams(self, number):
        """The next streams of the client."""
        first, self.next = self.next, self.next + 2 * number
        return range(first, self.next, 2)

    def ping(self):
        """Sends a PING; [`settled`] is true when the program has read all before it."""
        self.pings += 1
        self.send(frame(PING, 0, 0, b"settled?"))

    def settled(self):
        """Waits until each PING is acknowledged, or the connection is over."""
        until = time.monotonic() + PATIENCE
        while not self.is_gone and self.acknowledged < self.pings and time.monotonic() < until:
            if not self.read():
                self.wait(0.1)
        return self.is_gone or self.acknowledged >= self.pings
