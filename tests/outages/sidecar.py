"""The sidecar: strangers and verifiers with wrong secrets, and services that are away."""

import base64
import json
import subprocess
import uuid
from datetime import UTC, datetime

from edge import PORTCULLIS, ask, eventually, free_port
from outage import Outage


def token(**header):
    """An unsigned token."""
    claims = {"sub": str(uuid.uuid4()), "exp": 4_000_000_000}
    claims |= {"aud": "authenticated", "role": "authenticated"}
    parts = (header, claims)
    parts = [json.dumps(part).encode() for part in parts] + [bytes(64)]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


class Strangers(Outage):
    """Wrong secrets, and services that are down."""

    alerts = (
        "PortcullisWebhookSignaturesBad",
        "PortcullisWebhookConflicts",
        "PortcullisSessionsRefused",
        "PortcullisSessionKeysUnavailable",
        "PortcullisComponentUnwell",
        "PortcullisRelayTokensRefused",
    )

    def start(self):
        nowhere = f"http://127.0.0.1:{free_port()}"
        services = {"session__jwks_url": f"{nowhere}/jwks", "health__platform": nowhere}
        services = {f"sidecar__{key}": url for key, url in services.items()}
        self.serve(self.own_node(), relay=True, **services)

    def call(self, function, body=None, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return ask(f"http://{self.edge.sidecar}/functions/{function}", body, headers)

    def session(self, bearer, client=1):
        headers = {"authorization": f"Bearer {bearer}", "x_forwarded_for": f"198.51.100.{client}"}
        return self.call("age-verification-session", b"", **headers)

    def event(self, signature=None, **fields):
        """Sends an event of the verifier, signed with the right secret unless it says otherwise."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        fields = {"status": "verified", "age_band": "18_plus", **fields}
        fields |= {"verified_at": now, "occurred_at": now, "expires_at": None}
        event, secret = self.folder / "event.json", self.folder / "webhook.secret"
        event.write_text(json.dumps(fields))
        command = [PORTCULLIS, "sign-webhook", "--secret-file", str(secret), str(event)]
        signature = signature or subprocess.check_output(command, text=True).strip()
        headers = {"x_service_verifier_signature": signature}
        return self.call("age-verifier-webhook", event.read_bytes(), **headers)

    def play(self):
        own = (self.folder / "user.session").read_text().strip()
        subject = json.loads(self.session(own)[1])["subject_ref"]
        event = {"event_id": "evt-1", "subject_ref": subject}
        assert self.event(**event)[0] == 200
        status, text = self.event(**event, age_band="16_17")
        assert status == 409, text
        self.fires("PortcullisWebhookConflicts")
        for _ in range(8):
            assert self.event("0" * 64, **event)[0] == 401
        self.fires("PortcullisWebhookSignaturesBad")
        for number in range(80):
            assert self.session("none.of.ours", number)[0] == 401
        self.fires("PortcullisSessionsRefused")
        for number in range(40):
            drip = {"identity": "0x1", "recipient": "0x2", "public_key": "0x3"}
            client = f"198.51.100.{number // 8}"
            status, text = self.operate("/faucet-drip", drip, "0" * 32, x_forwarded_for=client)
            assert status == 401, text
        self.fires("PortcullisRelayTokensRefused")
        assert self.call("health-check")[0] == 503
        unknown = token(alg="ES256", kid="unknown", typ="JWT")
        with self.repeating(lambda: self.session(unknown, 9), 1, 1):
            self.fires("PortcullisSessionKeysUnavailable", "PortcullisComponentUnwell")
        paged = self.alertmanager.paged(self.edge.admin)[0]
        assert paged <= {"PortcullisWebhookSignaturesBad", "PortcullisBudgetBurnsFast"}, paged
