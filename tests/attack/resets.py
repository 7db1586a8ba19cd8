"""HTTP/2 requests that are taken back at once: each would start a fetch of its own if it were not
shared and recorded. Outbound fetches are counted, and another client's requests go on."""

import base64
import json
import time

from lib.http2 import Client
from lib.world import TLS, Service, World, eventually, require, response, request

HEALTH = ["platform", "pds", "email", "web_push", "podcast_syndication"]


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


def flood(world, requests, begin):
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
    bytes_ = request(b"GET", path, client="192.0.2.2")
    connection.sendall(bytes_.replace(b"\r\n\r\n", b"\r\n" + fields + b"\r\n"))
    status, _, body = response(connection)
    connection.close()
    return status, body


def main():
    services = Service(slow)
    with World(configuration(services)) as world:
        sessions = "/functions/age-verification-session"
        threads = world.threads()
        flood(world, 60, lambda attacker, number: attacker.begin(
            "GET", sessions, client="192.0.2.1",
            fields=[("authorization", f"Bearer {token(number)}")]))
        bearer = b"Authorization: Bearer " + token(1000).encode() + b"\r\n"
        status, body = another(world, sessions.encode(), bearer)
        require(status in (401, 503), f"a session by an unknown key is {status}: {body!r}")
        require(services.count("/jwks") <= 2, f"{services.count('/jwks')} fetches of the key set")

        flood(world, 60, lambda attacker, _: attacker.begin(
            "GET", "/functions/health-check", client="192.0.2.1"))
        status, body = another(world, b"/functions/health-check")
        require(status == 200, f"another client's health check is {status}: {body!r}")
        fetched = sum(services.count(f"/{name}") for name in HEALTH)
        require(fetched <= 2 * len(HEALTH), f"{fetched} fetches of {len(HEALTH)} services")

        flood(world, 570, lambda attacker, _: attacker.begin(
            "GET", "/functions/health-check", client="192.0.2.3"))
        more = world.threads() - threads
        require(more <= 128, f"{more} threads more after 570 requests that were taken back")
        require(another(world, b"/functions/health-check")[0] == 200, "another client's, again")
        require(another(world, b"/robots.txt")[0] == 200, "and its other requests")
        eventually("no request is left", lambda: world.metric("portcullis_requests_in_flight") == 0)
    services.shutdown()
