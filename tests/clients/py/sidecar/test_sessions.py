"""Platform sessions, made by PyJWT: which are accepted, and the error name of the others."""

import time
import uuid

import jwt
import pytest

from content import ADA, BANNED_USER, BEA, VIEWER_USER
from server import SESSION_SECRET, eventually
from stubs import closed_port
from tokens import ISSUER, SigningKey, bearer, by_hand, claims, mint, part

PATH = "/functions/age-verification-session"
OK = (200, None)
HS256 = {"alg": "HS256", "typ": "JWT"}


def now(seconds):
    return int(time.time()) + seconds


# Each is made from the platform's keys when its test runs.
TOKENS = {
    "HS256": (OK, lambda keys: mint()),
    "ES256": (OK, lambda keys: keys["ES256"].mint()),
    "RS256": (OK, lambda keys: keys["RS256"].mint()),
    "EdDSA": (OK, lambda keys: keys["EdDSA"].mint()),
    "an access token of OAuth": (OK, lambda keys: keys["RS256"].mint(typ="at+jwt")),
    "a type with its prefix": (OK, lambda keys: mint(typ="application/jwt")),
    "a refresh token": ((401, "BadJwtType"), lambda keys: mint(typ="refresh+jwt")),
    "EdDSA by a stranger's key": (
        (401, "BadJwtSignature"),
        lambda keys: SigningKey("EdDSA", "EdDSA-1").mint(),
    ),
    "aud as a list": (OK, lambda keys: mint(aud=["other", "authenticated"])),
    "nbf in the past": (OK, lambda keys: mint(nbf=now(-5))),
    "an upper-case sub": (OK, lambda keys: mint(sub=str(uuid.uuid4()).upper())),
    "HS256 by another secret": (
        (401, "BadJwtSignature"),
        lambda keys: mint("0" * 64),
    ),
    "HS256 by the public RSA key": (
        (401, "BadJwtSignature"),
        lambda keys: by_hand({**HS256, "kid": "RS256-1"}, claims(), keys["RS256"].pem()),
    ),
    "HS256 by the public EC key": (
        (401, "BadJwtSignature"),
        lambda keys: by_hand({**HS256, "kid": "ES256-1"}, claims(), keys["ES256"].pem()),
    ),
    "ES256 under the kid of an RSA key": (
        (401, "BadJwtSignature"),
        lambda keys: keys["ES256"].mint(kid="RS256-1"),
    ),
    "ES256 by a stranger's key": (
        (401, "BadJwtSignature"),
        lambda keys: SigningKey("ES256", "ES256-1").mint(),
    ),
    "alg none": ((401, "BadJwtType"), lambda keys: mint("", "none")),
    "alg none with HS256's signature": (
        (401, "BadJwtType"),
        lambda keys: by_hand({"alg": "none"}, claims(), SESSION_SECRET.encode()),
    ),
    "alg NONE": (
        (401, "BadJwtType"),
        lambda keys: by_hand({"alg": "NONE"}, claims(), SESSION_SECRET.encode()),
    ),
    "alg HS512": ((401, "BadJwtType"), lambda keys: mint(algorithm="HS512")),
    "a crit header": (
        (401, "BadJwt"),
        lambda keys: by_hand(
            {**HS256, "crit": ["b64"], "b64": False}, claims(), SESSION_SECRET.encode()
        ),
    ),
    "the legacy anon key": (
        (401, "BadJwt"),
        lambda keys: mint(iss="supabase", role="anon", sub=None, aud=None),
    ),
    "the legacy service_role key": (
        (401, "BadJwt"),
        lambda keys: mint(iss="supabase", role="service_role", sub=None, aud=None),
    ),
    "the role anon": ((401, "BadJwt"), lambda keys: mint(role="anon")),
    "the role service_role": ((401, "BadJwt"), lambda keys: mint(role="service_role")),
    "no role": ((401, "BadJwt"), lambda keys: mint(role=None)),
    "expired": ((401, "JwtExpired"), lambda keys: mint(exp=now(-120))),
    "no exp": ((401, "BadJwt"), lambda keys: mint(exp=None)),
    "nbf in the future": ((401, "JwtExpired"), lambda keys: mint(nbf=now(600))),
    "the wrong audience": ((401, "BadJwtAudience"), lambda keys: mint(aud="anon")),
    "no audience": ((401, "BadJwtAudience"), lambda keys: mint(aud=None)),
    "an empty list of audiences": ((401, "BadJwtAudience"), lambda keys: mint(aud=[])),
    "the wrong issuer": ((401, "BadJwtIss"), lambda keys: mint(iss="https://evil.example")),
    "no issuer": ((401, "BadJwtIss"), lambda keys: mint(iss=None)),
    "no sub": ((401, "BadJwt"), lambda keys: mint(sub=None)),
    "a sub that is no UUID": ((401, "BadJwt"), lambda keys: mint(sub="ada")),
    "an anonymous user": ((403, "Forbidden"), lambda keys: mint(is_anonymous=True)),
    "a banned user": ((403, "Forbidden"), lambda keys: mint(sub=BANNED_USER)),
    "two parts": ((401, "BadJwt"), lambda keys: mint().rpartition(".")[0]),
    "an empty signature": ((401, "BadJwtSignature"), lambda keys: mint().rpartition(".")[0] + "."),
    "words": ((401, "BadJwt"), lambda keys: "let.me.in"),
    "a payload that is no object": (
        (401, "BadJwt"),
        lambda keys: by_hand(HS256, b"[]", SESSION_SECRET.encode()),
    ),
    "a claim twice": (
        (401, "BadJwt"),
        lambda keys: by_hand(HS256, b'{"sub":"a","sub":"b"}', SESSION_SECRET.encode()),
    ),
    "padded base64": ((401, "BadJwt"), lambda keys: mint() + "=="),
}


@pytest.mark.parametrize("name", TOKENS)
def test_a_token_is_accepted_or_refused_by_name(sidecar, keys, name):
    expected, make = TOKENS[name]
    answer = sidecar.get(PATH, bearer(make(keys)))
    assert answer.error == expected, answer.body
    challenged = (answer.headers["WWW-Authenticate"] or "").startswith("Bearer")
    assert challenged == (answer.status == 401)
    assert answer.headers["Cache-Control"] == "no-store"


def test_a_missing_token_gets_401(sidecar):
    for headers in ({}, {"Authorization": ""}, {"Authorization": "Basic YTpi"}):
        answer = sidecar.get(PATH, headers)
        assert answer.error == (401, "AuthenticationRequired"), headers
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "BeArEr"])
def test_the_scheme_is_the_same_in_any_case(sidecar, scheme):
    assert sidecar.get(PATH, bearer(mint(), scheme)).status == 200


def test_two_authorization_headers_are_refused(sidecar):
    header = ("Authorization", f"Bearer {mint()}")
    answer = sidecar.get(PATH, [header, header])
    assert answer.error == (401, "AuthenticationRequired")


def test_an_authorization_header_may_have_8_kib(sidecar):
    def of_length(length):
        """Padded in the payload; three bytes there are four letters of the token."""
        wanting = length - len(mint(fill=""))
        fill = next(
            n for n in range(wanting // 4 * 3, wanting) if len(mint(fill="x" * n)) >= length
        )
        return mint(fill="x" * fill)

    fits, too_long = of_length(8180), of_length(8193)
    assert len(fits) <= 8192 < len(too_long)
    assert sidecar.get(PATH, bearer(fits)).status == 200
    assert sidecar.get(PATH, bearer(too_long)).error == (401, "BadJwt")


def test_refusals_do_not_contain_the_token(sidecar, keys):
    for _, make in TOKENS.values():
        token = make(keys)
        message = sidecar.get(PATH, bearer(token)).body.decode()
        for piece in token.split("."):
            assert len(piece) < 8 or piece not in message
        assert ISSUER not in message


FEED = "/functions/getFeedSkeleton?feed=at://did:web:cards.example/app.bsky.feed.generator/"
WHO = f"{FEED}whoto-follow"


def test_the_personal_feed_accepts_a_user_with_a_did(sidecar):
    answer = sidecar.get(WHO, bearer(mint(sub=VIEWER_USER)))
    assert answer.status == 200, answer.body
    assert answer.headers["Cache-Control"] == "private, no-store"
    assert answer.headers["Vary"].lower() == "authorization"
    assert answer.json()["feed"] == [
        {"post": f"at://{BEA}/app.bsky.feed.post/3kbea", "feedContext": f"{BEA} popular"}
    ]
    stranger = sidecar.get(WHO, bearer(mint()))
    assert stranger.error == (403, "Forbidden")
    assert stranger.headers["Cache-Control"] == "private, no-store"
    assert sidecar.get(WHO).error == (401, "AuthenticationRequired")


def test_public_feeds_ignore_tokens(sidecar):
    path = f"{FEED}fresh-pulls"
    plain = sidecar.get(path)
    assert plain.json()["feed"][0]["post"].startswith(f"at://{ADA}/")
    for token in ("nonsense", mint(exp=1)):
        answer = sidecar.get(path, bearer(token))
        assert (answer.status, answer.body) == (200, plain.body)
        assert "authorization" not in (answer.headers["Vary"] or "").lower()


@pytest.fixture(name="with_keys")
def sidecar_with_keys(start):
    def with_keys(url):
        return start({"sidecar.session": {"issuer": ISSUER, "jwks_url": url}})

    return with_keys


def test_a_new_key_is_found_when_a_token_names_it(with_keys, stub):
    old, new = SigningKey("ES256", "old"), SigningKey("RS256", "new")
    stub.answers["/rotation.json"] = {"keys": [old.public]}
    sidecar = with_keys(f"{stub.url}/rotation.json")
    ask = lambda key: sidecar.get(PATH, bearer(key.mint())).status  # noqa: E731
    assert ask(old) == 200
    stub.answers["/rotation.json"] = {"keys": [old.public, new.public]}
    eventually("the new key", lambda: ask(new) == 200, patience=35)
    assert ask(old) == 200
    assert stub.hits["/rotation.json"] <= 3, "tokens of unknown keys are no way to keep us asking"


def test_unknown_keys_do_not_cause_repeated_fetches(with_keys, stub):
    key = SigningKey("ES256", "known")
    stub.answers["/quiet.json"] = {"keys": [key.public]}
    sidecar = with_keys(f"{stub.url}/quiet.json")
    for at in range(50):
        stranger = SigningKey("ES256", f"stranger-{at}")
        answer = sidecar.get(PATH, bearer(stranger.mint()))
        assert answer.error == (401, "BadJwtSignature")
    assert stub.hits["/quiet.json"] <= 2


def test_known_keys_stay_valid_while_their_source_is_down(with_keys, stub):
    key = SigningKey("ES256", "cached")
    stub.answers["/down.json"] = {"keys": [key.public]}
    sidecar = with_keys(f"{stub.url}/down.json")
    assert sidecar.get(PATH, bearer(key.mint())).status == 200
    stub.answers["/down.json"] = 500
    assert sidecar.get(PATH, bearer(key.mint())).status == 200
    assert sidecar.get(PATH, bearer(SigningKey("ES256", "unknown").mint())).status in (401, 503)
    assert sidecar.get(PATH, bearer(key.mint())).status == 200, "not forgotten by that"


UNUSABLE = {
    "refuses": lambda stub: closed_port(),
    "fails": lambda stub: f"{stub.url}/fails.json",
    "redirects": lambda stub: f"{stub.url}/redirects.json",
    "hangs": lambda stub: f"{stub.url}/hangs.json",
    "is no JWKS": lambda stub: f"{stub.url}/empty.json",
    "is too large": lambda stub: f"{stub.url}/large.json",
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_without_any_keys_a_token_cannot_be_verified(with_keys, stub, name):
    stub.answers |= {
        "/fails.json": 500,
        "/redirects.json": 302,
        "/hangs.json": "hang",
        "/empty.json": {},
        "/large.json": {"keys": [SigningKey("ES256", "large").public], "fill": "x" * (65 << 10)},
    }
    sidecar = with_keys(UNUSABLE[name](stub))
    answer = sidecar.get(PATH, bearer(SigningKey("ES256", "large").mint()))
    assert answer.error == (503, "KeysUnavailable")
    assert int(answer.headers["Retry-After"]) >= 1
    assert sidecar.get(PATH, bearer(mint())).status == 200, "HS256 needs no source"


def test_without_keys_in_the_configuration_there_are_no_sessions(start):
    sidecar = start({"sidecar.session": {"hs256_secret_files": []}})
    for headers in ({}, bearer(mint())):
        assert sidecar.get(PATH, headers).error == (503, "NotConfigured")
        assert sidecar.ask("POST", PATH, headers).error == (503, "NotConfigured")


def test_a_symmetric_key_among_the_public_ones_is_not_used(with_keys, stub):
    secret = "f" * 64
    entry = {"kty": "oct", "kid": "oct", "alg": "HS256", "k": part(secret.encode())}
    real = SigningKey("ES256", "real")
    stub.answers["/oct.json"] = {"keys": [entry, real.public]}
    sidecar = with_keys(f"{stub.url}/oct.json")
    assert sidecar.get(PATH, bearer(real.mint())).status == 200
    token = jwt.encode(claims(), secret, "HS256", {"kid": "oct"})
    assert sidecar.get(PATH, bearer(token)).error == (401, "BadJwtSignature")
