"""Sessions of the platform, made by PyJWT, and invalid variants of them."""

import base64
import hashlib
import hmac
import json
import time
import uuid

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from server import SESSION_SECRET, UNSPEAKABLE

ISSUER = "https://auth.cards.example/auth/v1"
EMAIL = "ada.lovelace@mail.example"
UNSPEAKABLE.add(EMAIL)


def claims(**changes):
    """The claims of a signed-in user. A change to None removes a claim."""
    now = int(time.time())
    said = {
        "iss": ISSUER,
        "aud": "authenticated",
        "role": "authenticated",
        "sub": str(uuid.uuid4()),
        "iat": now,
        "exp": now + 3600,
        "session_id": str(uuid.uuid4()),
        "aal": "aal1",
        "email": EMAIL,
        "is_anonymous": False,
        **changes,
    }
    return {name: value for name, value in said.items() if value is not None}


def remember(token):
    """Marks a token, and its signature alone, as secret."""
    UNSPEAKABLE.update(part for part in (token, token.rpartition(".")[2]) if len(part) > 16)
    return token


def mint(key=SESSION_SECRET, algorithm="HS256", kid=None, typ="JWT", **changes):
    headers = {"typ": typ, **({"kid": kid} if kid else {})}
    return remember(jwt.encode(claims(**changes), key, algorithm, headers))


def part(value):
    """A part of a token: JSON in base64url."""
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def by_hand(header, payload, secret):
    """A token that PyJWT would refuse to make, with an HMAC over any header and claims."""
    signed = f"{part(header)}.{part(payload)}"
    mac = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
    return remember(f"{signed}.{part(mac)}")


def bearer(token, scheme="Bearer"):
    return {"Authorization": f"{scheme} {token}"}


class SigningKey:
    """A key of the platform, with its entry in the JWKS."""

    def __init__(self, algorithm, kid):
        self.algorithm, self.kid = algorithm, kid
        if algorithm == "ES256":
            self.key = ec.generate_private_key(ec.SECP256R1())
            shape = jwt.algorithms.ECAlgorithm
        elif algorithm == "EdDSA":
            self.key = ed25519.Ed25519PrivateKey.generate()
            shape = jwt.algorithms.OKPAlgorithm
        else:
            self.key = rsa.generate_private_key(65537, 2048)
            shape = jwt.algorithms.RSAAlgorithm
        public = json.loads(shape.to_jwk(self.key.public_key()))
        public.pop("key_ops", None)
        self.public = {**public, "kid": kid, "alg": algorithm, "use": "sig"}

    def pem(self):
        return self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def mint(self, **changes):
        return mint(self.key, self.algorithm, **{"kid": self.kid, **changes})
