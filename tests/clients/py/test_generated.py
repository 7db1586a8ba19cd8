"""Clients that openapi-python-client makes of the documents: they import, they know each reason of each
operation, and a user's life goes over them."""

import hashlib
import hmac
import importlib
import json
import secrets
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
import yaml
from starknet_py.hash.address import compute_address
from starknet_py.net.account.account import Account
from starknet_py.net.client_models import ResourceBounds, ResourceBoundsMapping
from starknet_py.net.schemas.broadcasted_txn import BroadcastedTransactionSchema
from starknet_py.net.signer.stark_curve_signer import KeyPair

from test_openapi import DOCUMENTS, system
from world import ACCOUNT_CLASS, node, run

SURFACES = ("gateway", "relay", "sidecar")
# XML is a text to the generator; it formats nothing.
CONFIG = """
post_hooks: []
content_type_overrides: {application/rss+xml: text/html, application/xml: text/html}
"""
METHODS = ("get", "post", "put", "options")
CHAIN = int.from_bytes(b"PORTCULLIS_DEV")
PRICE = 10**10
BOUNDS = ResourceBoundsMapping(
    l1_gas=ResourceBounds(100_000, PRICE),
    l1_data_gas=ResourceBounds(10_000, PRICE),
    l2_gas=ResourceBounds(200_000_000, PRICE),
)
REQUEST_ID = "0f8fad5b-d9cb-469f-a165-70867728950e"


def read(surface):
    return yaml.safe_load((DOCUMENTS / f"{surface}.yaml").read_text())


@pytest.fixture(scope="module", name="clients", autouse=True)
def generated_clients(tmp_path_factory):
    """A package for each surface, by name."""
    folder = tmp_path_factory.mktemp("generated")
    (folder / "config.yaml").write_text(CONFIG)
    sys.path.insert(0, str(folder))
    for surface in SURFACES:
        command = [Path(sys.executable).with_name("openapi-python-client"), "generate"]
        command += ["--path", DOCUMENTS / f"{surface}.yaml", "--meta", "none"]
        command += ["--config", folder / "config.yaml", "--fail-on-warning"]
        command += ["--output-path", folder / f"portcullis_{surface}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    yield folder
    sys.path.remove(str(folder))


def follow(root, found):
    for name in found.get("$ref", "")[2:].split("/") if "$ref" in found else []:
        root = root[name]
    return root if "$ref" in found else found


def member(root, schemas, name):
    """Every schema of one member: in these schemas, in their parts, and where they refer to."""
    found = []
    for schema in (follow(root, schema) for schema in schemas):
        if name in schema.get("properties", {}):
            found.append(schema["properties"][name])
        found += member(root, schema.get("allOf", []), name)
    return found


def listed(schemas):
    return [value for schema in schemas for value in schema.get("enum", [])]


def bodies(root, schema):
    """A body for each reason that a schema names: in JSON-RPC, of an operation, or as XRPC has it."""
    schema = follow(root, schema)
    for one in schema.get("oneOf", []) + schema.get("anyOf", []):
        yield from bodies(root, one)
    errors = member(root, [schema], "error")
    data = member(root, errors, "data")
    for reason in listed(member(root, data, "reason")):
        detail = {"reason": reason, "request_id": REQUEST_ID}
        error = {"code": listed(member(root, errors, "code"))[0], "message": "m", "data": detail}
        yield reason, {"jsonrpc": "2.0", "id": None, "error": error}
    for reason in listed(member(root, errors, "reason")):
        error = {"reason": reason, "message": "m", "request_id": REQUEST_ID}
        yield reason, {"ok": False, "error": error}
    for reason in listed(errors):
        yield reason, {"error": reason, "message": "m", "request_id": REQUEST_ID}


def errors_of(surface):
    """The module of each operation, a status, and the bodies of its errors."""
    root = read(surface)
    for operations in root["paths"].values():
        for method in (one for one in METHODS if one in operations):
            operation = operations[method]
            name = "".join(f"_{c.lower()}" if c.isupper() else c for c in operation["operationId"])
            module = f"portcullis_{surface}.api.{operation['tags'][0]}.{name}"
            for status, response in operation["responses"].items():
                content = follow(root, response).get("content", {}).get("application/json", {})
                for reason, body in bodies(root, content.get("schema", {})):
                    yield module, int(status), reason, body


def reason_of(parsed):
    """The reason of an error, as a client has parsed it."""
    error = parsed.error
    return getattr(getattr(error, "data", error), "reason", error)


@pytest.mark.parametrize("surface", SURFACES)
def test_every_module_imports(clients, surface):
    modules = list((clients / f"portcullis_{surface}").rglob("*.py"))
    assert len(modules) > 50
    for module in modules:
        name = ".".join(module.relative_to(clients).with_suffix("").parts)
        importlib.import_module(name.removesuffix(".__init__"))


@pytest.mark.parametrize("surface", SURFACES)
def test_each_operation_knows_its_reasons(surface):
    client = importlib.import_module(f"portcullis_{surface}").Client(base_url="http://localhost")
    count = 0
    for module, status, reason, body in errors_of(surface):
        parse = importlib.import_module(module)._parse_response
        parsed = parse(client=client, response=httpx.Response(status, json=body))
        assert reason_of(parsed) == reason, module
        unknown = json.loads(json.dumps(body).replace(f'"{reason}"', '"unheard_of"'))
        with pytest.raises(ValueError):
            parse(client=client, response=httpx.Response(status, json=unknown))
        count += 1
    assert count > 10


def call(surface, operation, client, body=None):
    """The answer to an operation, by its tag and name; a body by its model and members."""
    tag, name = operation.split(".")
    module = importlib.import_module(f"portcullis_{surface}.api.{tag}.{name}")
    if body is None:
        return module.sync_detailed(client=client)
    kind, members = body
    model = getattr(importlib.import_module(f"portcullis_{surface}.models"), kind)
    return module.sync_detailed(client=client, body=model.from_dict(members))


def done(answer, status=200):
    assert answer.status_code == status, answer.content
    return answer.parsed


class User:
    """A key, the account that follows from it, and an identity of the backend's own."""

    def __init__(self):
        self.keys = KeyPair.generate()
        self.key = hex(self.keys.public_key)
        self.identity = f"0x{secrets.token_hex(16)}"
        self.arguments = {"class_hash": ACCOUNT_CLASS, "constructor_calldata": [int(self.key, 16)]}
        self.address = hex(compute_address(**self.arguments, salt=self.keys.public_key))

    def deployment(self):
        """The signed request that deploys the account."""
        account = Account(client=node, address=self.address, key_pair=self.keys, chain=CHAIN)
        fee = {"resource_bounds": BOUNDS, "tip": 0}
        salt = self.keys.public_key
        sign = account.sign_deploy_account_v3
        signed = run(sign(**self.arguments, contract_address_salt=salt, **fee))
        transaction = BroadcastedTransactionSchema().dump(obj=signed)
        method = "starknet_addDeployAccountTransaction"
        params = {"deploy_account_transaction": transaction}
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@pytest.fixture(scope="module", name="whole")
def whole_system(tmp_path_factory):
    with system(tmp_path_factory.mktemp("system")) as found:
        yield found


def test_a_user_lives_over_the_client_of_the_relay(whole):
    origins, state = whole
    token = (state / "relay.token").read_text().strip()
    package = importlib.import_module("portcullis_relay")
    backend = package.AuthenticatedClient(base_url=origins["relay"], token=token)
    user, other = User(), User()
    account = {"account": user.address}
    names = {"identity": user.identity, "public_key": user.key}

    def works(name, kind, members):
        return done(call("relay", name, backend, (kind, members)))

    works("product.faucet_drip", "FaucetDrip", {**names, "recipient": user.address})
    works("transactions.submit", "DeployAccountSubmission", user.deployment())
    works("identity.register", "Register", {**names, **account})
    card = ("MintCard", {"recipient": user.address, "card_id": str(int(user.identity, 16))})
    early = call("relay", "product.mint_card", backend, card)
    assert (early.status_code, reason_of(early.parsed)) == (409, "not_verified")
    attested = {"assurance_type": "age_over_18", "assurance_level": 1}
    attested |= {"attestation_id": user.identity, "expires_at": "2100-01-31T12:00:00Z"}
    works("identity.verification_attest", "Attest", {**account, **attested})
    works("product.mint_card", *card)
    moved = {"new_account": other.address, "new_public_key": other.key}
    proposed = {"identity": user.identity, **moved}
    proposal = works("identity.recovery_propose", "RecoveryPropose", proposed)
    assert proposal.ready_at > datetime.now(UTC)
    works("identity.recovery_cancel", "Identity", {"identity": user.identity})


def test_a_read_goes_over_the_client_of_the_gateway(whole):
    origins, _ = whole
    client = importlib.import_module("portcullis_gateway").Client(base_url=origins["gateway"])
    request = {"jsonrpc": "2.0", "id": "a", "method": "starknet_chainId"}
    assert done(call("gateway", "reads.call", client, ("Request", request))).result == hex(CHAIN)
    wrong = call("gateway", "reads.call", client, ("Request", {**request, "params": [1]}))
    assert (wrong.status_code, reason_of(wrong.parsed)) == (400, "invalid_params")


def test_a_proof_of_age_goes_over_the_client_of_the_sidecar(whole):
    origins, state = whole
    package = importlib.import_module("portcullis_sidecar")
    url, key = origins["sidecar"], (state / "webhook.secret").read_bytes().strip()

    def sign(request):
        code = hmac.new(key, request.content, hashlib.sha256).hexdigest()
        request.headers["x-service-verifier-signature"] = code

    reader = package.Client(base_url=url)
    feeds = done(call("sidecar", "feeds.describe_feed_generator", reader)).feeds
    skeleton = importlib.import_module("portcullis_sidecar.api.feeds.get_feed_skeleton")
    assert done(skeleton.sync_detailed(client=reader, feed=feeds[0].uri)).feed

    session = (state / "user.session").read_text().strip()
    user = package.AuthenticatedClient(base_url=url, token=session)
    opened = done(call("sidecar", "age.open_age_session", user), 201)
    now = datetime.now(UTC).isoformat()
    event = {"event_id": f"evt-{opened.subject_ref}", "subject_ref": opened.subject_ref}
    event |= {"status": "verified", "age_band": "18_plus", "verified_at": now, "occurred_at": now}
    hooks = {"event_hooks": {"request": [sign]}}
    verifier = package.Client(base_url=url, httpx_args=hooks)
    report = ("Verified", event)
    assert done(call("sidecar", "age.age_verifier_webhook", verifier, report)).state == "verified"
    refused = call("sidecar", "age.age_verifier_webhook", reader, report)
    assert (refused.status_code, reason_of(refused.parsed)) == (401, "InvalidSignature")
    assert done(call("sidecar", "age.age_status", user)).status == "verified"
