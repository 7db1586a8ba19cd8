"""Requests that two readers may frame or route differently, on two surfaces, over HTTP/1 and over
HTTP/2: refused, and what is hidden behind them is never answered."""

import json

from lib.attack import HTTP1, HTTP2, Attack
from lib.http2 import Client
from lib.world import TLS, World, ask, read, request, require, response

PLAIN = """
[gateway]
listen = "127.0.0.1:0"
[gateway.cache]
enabled = false
[sidecar]
listen = "127.0.0.1:0"
base_url = "https://cards.example"
"""
SECURE = PLAIN + TLS.format("gateway") + TLS.format("sidecar")

BODY = read()
HIDDEN = b"GET /healthz HTTP/1.1\r\nHost: hidden\r\n\r\n"
SURFACES = {"gateway": b"/rpc", "sidecar": b"/functions/age-verifier-webhook"}


def framings(path):
    """Heads that are not certain, each with what follows it."""
    def post(*fields):
        lines = [b"POST %s HTTP/1.1" % path, b"Host: x", b"Content-Type: application/json", *fields]
        return b"\r\n".join([*lines, b"", b""])

    length = b"Content-Length: %d" % len(BODY)
    chunked = b"Transfer-Encoding: chunked"
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
    yield "two equal lengths", post(length, length) + BODY
    yield "a list of equal lengths", post(length + b", %d" % len(BODY)) + BODY
    yield "two lengths", post(length, b"Content-Length: 1") + BODY
    yield "a length and chunks", post(length, chunked) + chunks
    yield "chunks and a length", post(chunked, length) + chunks
    yield "chunks twice", post(chunked, chunked) + chunks
    yield "an unknown coding", post(b"Transfer-Encoding: gzip, chunked") + chunks
    yield "a length with a sign", post(b"Content-Length: +%d" % len(BODY)) + BODY
    yield "a folded field", post(b"X: y\r\n " + length) + BODY
    yield "a blank before the colon", post(b"Content-Length : %d" % len(BODY)) + BODY
    for line in (b"GET /healthz", b"HEAD /healthz", b"OPTIONS %s" % path):
        fields = [b"Host: x", b"Content-Length: 5", chunked]
        head = b"\r\n".join([line + b" HTTP/1.1", *fields, b"", b""])
        yield f"{line.decode()} with a length and chunks", head + b"0\r\n\r\n"
    yield "a fragment", post(length).replace(path, path + b"#x", 1) + BODY


def over_http1():
    with World(PLAIN) as world:
        framings_are_refused(world)
        status, _, body = ask(world.connect("gateway"), b"POST", b"/rpc", BODY)
        require(status == 200 and json.loads(body)["result"] == "0x1", "a read that is certain")


def framings_are_refused(world):
    for surface, path in SURFACES.items():
        for what, bytes_ in framings(path):
            connection = world.connect(surface)
            connection.sendall(bytes_ + HIDDEN)
            status, fields, _ = response(connection, has_body=not bytes_.startswith(b"HEAD"))
            # 405 where the path takes no such method, which is judged first
            refused = (400, 405) if bytes_.startswith(b"OPTIONS") else (400,)
            require(status in refused, f"{surface}: {what} is {status}")
            require(fields.get("connection") == "close", f"{surface}: {what} closes")
            require(rest(connection) == b"", f"{surface}: behind {what}, nothing is answered")
        pipelined(world, surface)


def pipelined(world, surface):
    """A client that sends several requests at once learns from the first answer that the rest is
    lost."""
    for behind in (1, 5, 50):
        connection = world.connect(surface)
        connection.sendall(request(b"GET", b"/healthz") * (behind + 1))
        status, fields, _ = response(connection)
        answered = 1
        while fields.get("connection") != "close" and answered <= behind:
            status, fields, _ = response(connection)
            answered += 1
        require(status == 200, f"{surface}: a pipelined request is {status}")
        closes = fields.get("connection") == "close"
        require(closes or answered == behind + 1, f"{surface}: the rest is announced as lost")
        connection.close()


def rest(connection):
    """Returns the bytes that arrive until the connection ends."""
    data = b""
    try:
        while piece := connection.recv(65_536):
            data += piece
    except ConnectionError:
        pass
    return data


def over_http2():
    with World(SECURE) as world:
        requests_are_refused(world)


def requests_are_refused(world):
    length = ("content-length", str(len(BODY)))
    wrong = []
    for surface, path in SURFACES.items():
        path = path.decode()
        requests = {
            "userinfo": dict(authority="user@localhost"),
            "a user and a password": dict(authority="user:secret@localhost"),
            "two equal lengths": dict(fields=[length, length]),
            "two lengths": dict(fields=[length, ("content-length", "1")]),
            "a transfer coding": dict(fields=[("transfer-encoding", "chunked")]),
            "a connection field": dict(fields=[("connection", "close")]),
            "a fragment": dict(path=path + "#x"),
        }
        for what, changes in requests.items():
            attacker = Client(world.secure(surface))
            sent = {"path": path, "client": "192.0.2.1", **changes}
            outcome = attacker.outcome(attacker.post(sent.pop("path"), BODY, **sent))
            if outcome not in (400, "reset", "gone"):
                wrong.append(f"{surface}: {what} over HTTP/2 is {outcome}")
            attacker.socket.close()
        other = Client(world.secure(surface))
        fine = other.begin("GET", "/healthz", client="192.0.2.2")
        require(other.outcome(fine) == 200, f"{surface}: a request that is certain")
    require(not wrong, "; ".join(wrong))


ATTACK = Attack(
    title="request smuggling",
    published="CVE-2005-2088, RFC 9112, section 11.2",
    over=(HTTP1, HTTP2),
    checks=(over_http1, over_http2),
    also="refused, and the bytes behind them are never answered",
)
