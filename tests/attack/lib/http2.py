"""HTTP/2 as an attacker speaks it: what `h2` would correct is sent as it is."""

import select

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

from .world import PATIENCE, Failed


class Client:
    """A connection: `statuses`, `reset` and `ended` by stream, and `gone` when it is over."""

    def __init__(self, socket, window=None, reads=True):
        self.socket, self.reads = socket, reads
        self.h2 = H2Connection(H2Configuration(
            client_side=True,
            header_encoding="utf-8",
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        ))
        self.statuses, self.bodies, self.reset, self.ended = {}, {}, {}, set()
        self.gone = False
        if window is not None:
            self.h2.local_settings[SettingCodes.INITIAL_WINDOW_SIZE] = window
            self.h2.local_settings.acknowledge()
        self.h2.initiate_connection()
        self.flush()

    def flush(self):
        try:
            self.socket.sendall(self.h2.data_to_send())
        except OSError:
            self.gone = True

    def begin(self, method, path, *, client, fields=(), authority="localhost", end=True):
        """Sends a request's head; returns its stream."""
        stream = self.h2.get_next_available_stream_id()
        head = [
            (":method", method),
            (":scheme", "https"),
            (":path", path),
            (":authority", authority),
            ("x-forwarded-for", client),
            *fields,
        ]
        self.h2.send_headers(stream, head, end_stream=end)
        self.flush()
        return stream

    def post(self, path, body, *, client, fields=(), authority="localhost"):
        """Sends a whole request."""
        fields = [("content-type", "application/json"), *fields]
        stream = self.begin(
            "POST", path, client=client, fields=fields, authority=authority, end=False)
        self.h2.send_data(stream, body, end_stream=True)
        self.flush()
        return stream

    def cancel(self, stream):
        self.h2.reset_stream(stream, ErrorCodes.CANCEL)
        self.flush()

    def step(self, seconds):
        """Handles what arrives within this time; returns whether anything did."""
        if self.gone:
            return False
        if not self.socket.pending() and not select.select([self.socket], [], [], seconds)[0]:
            return False
        try:
            data = self.socket.recv(1 << 18)
        except OSError:
            data = b""
        if not data:
            self.gone = True
            return True
        try:
            events = self.h2.receive_data(data)
        except ProtocolError:  # what follows a GOAWAY
            self.gone, events = True, []
        for event in events:
            self.handle(event)
        self.flush()
        return True

    def handle(self, event):
        match event:
            case ResponseReceived():
                self.statuses[event.stream_id] = int(dict(event.headers)[":status"])
            case DataReceived():
                length = event.flow_controlled_length
                self.bodies[event.stream_id] = self.bodies.get(event.stream_id, 0) + len(event.data)
                if self.reads and length:
                    self.h2.acknowledge_received_data(length, event.stream_id)
            case StreamEnded():
                self.ended.add(event.stream_id)
            case StreamReset():
                self.reset[event.stream_id] = event.error_code
            case ConnectionTerminated():
                self.gone = True

    def outcome(self, stream):
        """The status of a stream, `reset`, or `gone` if the connection ended before either."""
        for _ in range(PATIENCE * 10):
            if stream in self.statuses:
                return self.statuses[stream]
            if stream in self.reset:
                return "reset"
            if self.gone:
                return "gone"
            self.step(0.1)
        raise Failed(f"stream {stream} has no response")
