#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets: the vectors of `filters/tests/vectors`, and a few bodies by
hand where there are no vectors.

    tests/fuzz/seeds.py FOLDER
"""
import json
import sys
from hashlib import sha256
from pathlib import Path

VECTORS = Path(__file__).resolve().parents[2] / "filters/tests/vectors"
SUBJECT = "0123456789abcdef" * 3
FELT = "0x39d9e6ce352ad4530a0ef5d5a18fd3303c3606a7fa6ac5b620020ad681cc33b"


def vectors(pattern):
    for path in sorted(VECTORS.glob(pattern)):
        yield from map(json.loads, path.read_text().splitlines())


def bodies():
    return [vector["body"] for vector in vectors("starknet_*.ndjson")]


def with_ids(body):
    """The body under three ids, as the parsed-bodies cache may get them."""
    try:
        ids = [json.dumps({**json.loads(body), "id": number}) for number in (1, 20, 3)]
    except (TypeError, ValueError):
        ids = []
    return b"\xff".join(text.encode() for text in [body, *ids])


def transactions():
    for vector in vectors("*.ndjson"):
        try:
            params = json.loads(vector.get("body") or vector["request"])["params"] or []
        except (KeyError, TypeError, ValueError):
            continue
        for value in params.values() if isinstance(params, dict) else params:
            for transaction in value if isinstance(value, list) else [value]:
                if isinstance(transaction, dict) and "resource_bounds" in transaction:
                    yield json.dumps(transaction)


def answers():
    for vector in vectors("answers.ndjson"):
        yield vector["body"].replace(f'"id":{vector["id"]}', '"id":7')
    for vector in vectors("cached.ndjson"):
        yield json.dumps({**json.loads(vector["answer"]), "id": 7}, separators=(",", ":"))
    yield '{"jsonrpc":"2.0","error":{"code":-32602,"message":"m","data":[1]},"id":7}'


def responses():
    chunks = b"5;x=y\r\n{\"a\":\r\n2\r\n1}\r\n0\r\nX: y\r\n\r\n"
    for fields, body in [
        (b"Content-Length: 7\r\nContent-Type: application/json\r\n", b'{"a":1}'),
        (b"content-length: 2\r\nConnection: close\r\n", b"{}HTTP/1.1 200 OK\r\n\r\n"),
        (b"Transfer-Encoding: chunked\r\n", chunks),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", chunks),
        (b"Content-Encoding: identity\r\n", b'{"a":1}'),
        (b"Transfer-Encoding: chunked\r\n", b"2;" + b"e" * 70 + b"\r\n{}\r\n0\r\n\r\n"),
    ]:
        for status in (b"HTTP/1.1 200 OK", b"HTTP/1.0 200", b"HTTP/1.1 302 Found", b"HTTP/1.1 500 No"):
            yield b"\x05" + status + b"\r\n" + fields + b"\r\n" + body
        interim = b"HTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n"
        yield b"\x00" + 3 * interim + b"HTTP/1.1 200 OK\r\n" + fields + b"\r\n" + body


def operations():
    account, key = {"account": FELT}, {"public_key": FELT}
    level = {"assurance_type": "KYC", "assurance_level": 3, "expires_at": "2031-02-03T04:05:06+01:00"}
    for kind, body in enumerate([
        {"identity": "0x1d", **account, **key},
        {**account, "attestation_id": "0xa7", **level},
        {**account, "reason": 'a "why"'},
        {"recipient": FELT, "card_id": "340282366920938463463374607431768211456"},
        {**account, "epoch": 10, "units": "255", "evidence": "0x0"},
        {"identity": "0x1d", "recipient": FELT, **key},
        {"identity": "0x1d", "new_account": FELT, "new_public_key": FELT},
        {"identity": "0x1d"},
        {"identity": "0x01D"},
        {"confirm": "ACTIVATE PERMANENT V2 VERIFICATION"},
    ]):
        yield bytes([kind]) + json.dumps(body).encode()


def events():
    common = {"event_id": "evt_1", "subject_ref": SUBJECT, "occurred_at": "2026-03-01T12:00:00Z"}
    for status in ("pending", "rejected", "expired", "revoked"):
        yield json.dumps({**common, "status": status, "age_band": None})
    yield json.dumps({**common, "status": "expired", "expires_at": "2026-02-01t00:00:00.5+01:00"})
    yield json.dumps({
        **common,
        "status": "verified",
        "age_band": "18_plus",
        "verified_at": "2026-03-01T11:59:00Z",
        "expires_at": "2027-03-01T11:59:00Z",
    })


def heads():
    host = "Host: x\r\nContent-Type: application/json\r\n"
    token = "Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n"
    for peer, line, fields in [
        ("127.0.0.1", "POST /rpc HTTP/1.1", host + "Content-Length: 65\r\n"),
        ("10.0.0.1", "POST /rpc HTTP/1.1", host + "X-Forwarded-For: 1.1.1.1, 192.0.2.1:80,10.9.9.9\r\n"),
        ("2001:db8::1", "POST /rpc HTTP/1.1", host + "X-Forwarded-For: [2001:db9::1]:443\r\nX-Forwarded-For: 10.1.1.1\r\n"),
        ("192.0.2.9", "POST /rpc HTTP/1.0", host + "Transfer-Encoding: chunked\r\nExpect: x\r\n"),
        ("", "POST /rpc HTTP/1.1", host + "Expect: 100-continue\r\nContent-Encoding: identity\r\n"),
        ("::1", "GET /readyz HTTP/1.1", host + token),
        ("::ffff:10.0.0.1", "POST /register HTTP/1.1", host + token + "Idempotency-Key: k\r\n"),
        ("10.0.0.1", "OPTIONS /rpc HTTP/1.1", "Host: x\r\nX-Forwarded-For: ::ffff:10.0.0.2, unknown\r\n"),
        ("10.0.0.1", "GET /healthz HTTP/1.1", "Host: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n"),
    ]:
        yield f"{peer}\n{line}\r\n{fields}\r\n"


def proxy_headers():
    signature = b"\r\n\r\n\0\r\nQUIT\n"
    v4, v6 = bytes(range(12)), bytes(range(36))
    for command, family, block in [
        (0x21, 0x11, v4),
        (0x21, 0x21, v6),
        (0x21, 0x11, v4 + b"\x03\x00\x04abcd"),
        (0x20, 0x00, b""),
        (0x21, 0x00, b""),
        (0x21, 0x31, bytes(216)),
        (0x21, 0x12, v4),
    ]:
        yield signature + bytes([command, family]) + len(block).to_bytes(2, "big") + block + b"POST /"
    yield b"PROXY TCP4 192.0.2.9 10.0.0.1 1 2\r\n"


# tokens from 16 on: six contracts, eleven selectors, the sender, as in the target
CALLS = [
    [1, 16, 22, 3, 17, 5, 0],
    [2, 17, 23, 3, 7, 5, 0, 17, 24, 2, 9, 0],
    [1, 17, 25, 3, 99, 1, 0],
    [1, 17, 26, 3, 99, 0, 1],
    [2, 17, 27, 0, 17, 28, 0],
    [1, 18, 29, 3, 43, 1, 0],
    [1, 18, 30, 3, 43, 1, 0],
    [2, 19, 31, 3, 99, 7, 0, 19, 32, 2, 7, 0],
    [1, 33, 34, 0],
    [1, 33, 22, 0],
    [9, 19, 32, 0],
    [0],
]

LIMITS = [
    bytes([4, 3, 6, 1, 3, 0, 0, 50, 6, 1, 9, 3, 0, 2, 6, 1, 9, 4, 1, 0, 2, 0, 128, 5, 0, 0]),
    bytes([20, 7]) + bytes(range(120)),
]



def header_blocks():
    """Connections: of each block its flags (padding, priority, two frames, trailers), and its bytes."""
    plain, coded = b"\x82\x87\x04\x02/#", b"\x82\x87\x44\x83\x63\xfe\xbf"
    stored = b"\x83\x87\x41\x0aedge.test:\x44\x04/rpc\x40\x01a\x85\xf2\xb2\x4a\x84\xff"
    named = b"\x00\x05:path\x01/\x00\x84\xb9\x58\xd3\x3f\x02/#"
    for blocks in [
        [(0, plain), (1, b"\x00\x01a\x01b")],
        [(2, coded), (0, b"\x82\x87\xbe"), (1, b"\x84")],
        [(0, stored), (0, b"\x83\x87\xbe\xbf\xc0"), (3, b"\x20\x3f\xe1\x1f\x0f\x2f\x01c")],
        [(8, b"\x02" + named + b"\0\0"), (0x28, b"\x01\0\0\0\0\x10" + coded + b"\0")],
        [(0, b"\x40\x01a\x7f\xa1\x1f" + b"x" * 4_128), (0, b"\x44\x02/#"), (0, b"\xbe\xbf")],
    ]:
        yield b"".join(bytes([flags]) + len(block).to_bytes(2, "big") + block for flags, block in blocks)


SEEDS = {
    "calldata": map(bytes, CALLS),
    "head": heads(),
    "header_blocks": header_blocks(),
    "http1_response": responses(),
    "limiter": LIMITS,
    "node_response": answers(),
    "operation": operations(),
    "proxy_header": proxy_headers(),
    "repeated_body": map(with_ids, bodies()),
    "request_body": bodies(),
    "transaction": transactions(),
    "webhook": events(),
}


def main(folder):
    for target, seeds in SEEDS.items():
        into = Path(folder) / target
        into.mkdir(parents=True, exist_ok=True)
        for seed in seeds:
            seed = seed if isinstance(seed, bytes) else seed.encode()
            (into / sha256(seed).hexdigest()[:16]).write_bytes(seed)


if __name__ == "__main__":
    main(*sys.argv[1:])
