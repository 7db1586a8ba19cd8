"""Renewal information (RFC 9773) in front of a Pebble that has none: everything else is passed on."""

import base64
import datetime
import http.client
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from authority import free_port


class RenewalInfo:
    """A server that suggests to renew the first certificate now, and later ones in a month."""

    def __init__(self, folder, authority):
        self.authority, self.asked, self.replaced = authority, [], []
        self.port = free_port()
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), self.handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "directory.pem", folder / "directory.key")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def directory(self):
        return f"https://127.0.0.1:{self.port}/dir"

    def end(self):
        self.server.shutdown()

    def window(self, certificate):
        """The suggested window of a certificate, by its id."""
        if certificate not in self.asked:
            self.asked.append(certificate)
        days = -2 if certificate == self.asked[0] else 30
        now = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
        return [(now + datetime.timedelta(days=days + more)).isoformat() for more in (0, 1)]

    def handler(self):
        """The class of this server's request handlers."""
        info = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                if self.path.startswith("/renewal-info/"):
                    start, end = info.window(self.path.rsplit("/", 1)[1])
                    window = {"suggestedWindow": {"start": start, "end": end}}
                    self.reply(200, [("Retry-After", "3600")], json.dumps(window).encode())
                else:
                    self.pass_on(b"")

            def do_HEAD(self):
                self.pass_on(b"")

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                payload = json.loads(body)["payload"]
                payload = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
                more = {}
                if b"replaces" in payload:
                    # the order repeats it: section 5
                    more = {"replaces": json.loads(payload)["replaces"]}
                    info.replaced.append(more["replaces"])
                self.pass_on(body, more)

            def pass_on(self, body, more=None):
                context = ssl.create_default_context(cafile=info.authority.root)
                port = info.authority.port
                upstream = http.client.HTTPSConnection("127.0.0.1", port, context=context)
                # with the same Host, its URLs lead here
                upstream.request(self.command, self.path, body, dict(self.headers))
                answer = upstream.getresponse()
                content = answer.read()
                if self.path == "/dir":
                    more = {"renewalInfo": f"https://127.0.0.1:{info.port}/renewal-info"}
                if more and answer.status < 300:
                    content = json.dumps({**json.loads(content), **more}).encode()
                dropped = ("content-length", "transfer-encoding", "connection", "date")
                fields = [pair for pair in answer.getheaders() if pair[0].lower() not in dropped]
                self.reply(answer.status, fields, content)

            def reply(self, status, fields, content):
                self.send_response(status)
                for name, value in fields:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

        return Handler
