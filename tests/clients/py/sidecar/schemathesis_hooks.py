"""Schemathesis hooks for the sidecar under test: its data, a session, a signature."""

import hashlib
import hmac
import os
from datetime import UTC, datetime, timedelta

import schemathesis
from requests.auth import AuthBase

from content import ADA

FEED = "at://did:web:cards.example/app.bsky.feed.generator/"
FEEDS = (
    "trade-listings",
    "collection-posts",
    "fresh-pulls",
    "showcase",
    "journals",
    "card-reviews",
    "whoto-follow",
)
NOW = datetime.now(UTC)
SIGNATURE = "x-service-verifier-signature"


@schemathesis.hook
def before_load_schema(_context, raw_schema):
    """Replaces general rules with values that are valid at this sidecar only."""
    components = raw_schema["components"]
    parameters, schemas = components["parameters"], components["schemas"]
    parameters["Feed"]["schema"] = {"type": "string", "enum": [FEED + name for name in FEEDS]}
    parameters["Feed"]["example"] = FEED + FEEDS[0]
    parameters["Did"]["example"] = ADA
    parameters["Handle"]["example"] = "ada.cards.example"
    # Only cursors from a page of the same feed are valid.
    for path in raw_schema["paths"].values():
        for operation in path.values():
            remaining = [
                p
                for p in operation.get("parameters", [])
                if not p.get("$ref", "").endswith("Cursor")
            ]
            if "parameters" in operation:
                operation["parameters"] = remaining
    # Instants have an order that OpenAPI cannot express.
    given = schemas["GivenInstant"]
    later = {**given, "enum": [(NOW + timedelta(days=90)).isoformat()]}
    given["enum"] = [(NOW - timedelta(minutes=1)).isoformat()]
    event = schemas["AgeEvent"]
    for form in event["oneOf"]:
        form["properties"]["subject_ref"] = {"enum": [os.environ["SIDECAR_SUBJECT"]]}
        ends = form["properties"]["expires_at"]
        if "oneOf" in ends:
            ends["oneOf"][0] = later
    (operation,) = raw_schema["paths"]["/functions/age-verifier-webhook"].values()
    operation["requestBody"]["content"]["application/json"].pop("example")


class Signed(AuthBase):
    """Signs the final body, or adds a session where one is required."""

    def __call__(self, request):
        if request.path_url.startswith("/functions/age-verifier-webhook"):
            body = request.body or b""
            body = body.encode() if isinstance(body, str) else body
            key = os.environ["SIDECAR_SECRET"].encode()
            request.headers[SIGNATURE] = hmac.new(key, body, hashlib.sha256).hexdigest()
        else:
            request.headers["Authorization"] = f"Bearer {os.environ['SIDECAR_SESSION']}"
        return request


schemathesis.auth.set_from_requests(Signed())
