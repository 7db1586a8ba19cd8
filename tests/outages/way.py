"""A way to a node that does to the calls what a test says: the faults of nodes and of proxies."""

import json
import random
import socket
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


# Seconds: less than any time limit of a call.
STALL = (1, 4)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, client_address):
        """A client that left is no fault of this server."""


class Way:
    """A proxy to a node. `fault` gets the method and parameters of each call, and may wait; it
    returns None to pass the call on, or what to do instead: a status, `CUT`, `SWALLOW`, `REPEAT` of
    the first answer to such a call, `STALL` before the end of a large answer, or a function that
    changes the answer."""

    CUT, SWALLOW, REPEAT, STALL = "cut", "swallow", "repeat", "stall"

    def __init__(self, node):
        self.node, self.fault = node, lambda method, params: None
        self.answers = {}
        way = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                way.serve(self, body)

            def log_message(self, *_):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/rpc"

    def serve(self, handler, body):
        call = json.loads(body)
        act = self.fault(call["method"], call.get("params"))
        if act == Way.CUT:
            return self.cut(handler)
        if isinstance(act, int):
            status, answer = act, b"<html>an error page</html>"
        elif act == Way.STALL:
            result = json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": "0" * 400_000})
            status, answer = 200, result.encode()
        else:
            status, answer = 200, self.answer(call, act == Way.REPEAT)
        if callable(act):
            answer = json.dumps(act(json.loads(answer))).encode()
        if act == Way.SWALLOW:
            return self.cut(handler)
        handler.send_response(status)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(answer)))
        handler.end_headers()
        handler.wfile.write(answer[:-1])
        if act == Way.STALL:
            time.sleep(random.uniform(*STALL))
        handler.wfile.write(answer[-1:])

    def answer(self, call, repeat):
        """The node's answer to a call, or its first to such a one."""
        key = call["method"] + json.dumps(call["params"])
        if not repeat or key not in self.answers:
            answer = self.forward(json.dumps(call).encode())
            if not repeat:
                return answer
            self.answers[key] = answer
        return json.dumps({**json.loads(self.answers[key]), "id": call["id"]}).encode()

    def forward(self, body):
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self.node.url, body, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read()

    def cut(self, handler):
        handler.close_connection = True
        handler.connection.shutdown(socket.SHUT_RDWR)

    def end(self):
        self.server.shutdown()
        self.server.server_close()


class Receiver:
    """A receiver of events: it answers each with `status`."""

    def __init__(self, status=503):
        self.status = status
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(receiver.status)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/events"

    def end(self):
        self.server.shutdown()
        self.server.server_close()


def slow(**seconds):
    """A fault that delays the named methods, and all others by `others`."""

    def wait(method, _params):
        time.sleep(seconds.get(method.removeprefix("starknet_"), seconds.get("others", 0)))

    return wait
