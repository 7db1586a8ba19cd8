"""The HTTP services that the sidecar calls, on loopback, with responses that a test sets."""

import json
import socket
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Stub:
    """`answers` maps a path to a status, to a value for JSON, or to "hang"; other paths are 404."""

    def __init__(self):
        self.answers = {}
        self.hits = Counter()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                stub.hits[self.path] += 1
                answer = stub.answers.get(self.path, 404)
                if answer == "hang":
                    time.sleep(6)
                    return
                status, body = (
                    (answer, b"") if isinstance(answer, int) else (200, json.dumps(answer).encode())
                )
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            do_HEAD = do_GET

            def log_message(self, *_):
                """Logs nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def end(self):
        self.server.shutdown()
        self.server.server_close()


def closed_port():
    """A URL without a listener."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}/"
