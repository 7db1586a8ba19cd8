"""The gateway conforms to conf/openrpc/gateway.yaml: each method's examples, run on a real node."""

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

from world import ACCOUNT_CLASS, GATEWAY, SEEDED, mint, node, post, run

HERE = Path(__file__).parent
DOCUMENT = yaml.safe_load((HERE.parents[2] / "conf/openrpc/gateway.yaml").read_text())
META_SCHEMA = json.loads((HERE / "openrpc/meta-schema.json").read_text())
METHODS = {method["name"]: method for method in DOCUMENT["methods"]}
EXAMPLES = [
    pytest.param(name, example, id=f"{name}: {example['name']}")
    for name, method in METHODS.items()
    for example in method["examples"]
]
NOWHERE = "0x7" + "0" * 50


def resolved(node):
    """A node, or the target of its reference."""
    if "$ref" not in node:
        return node
    found = DOCUMENT
    for name in node["$ref"].removeprefix("#/").split("/"):
        found = found[name]
    return found


def check(schema, value):
    """Fails unless the value conforms to a schema of the document."""
    Draft7Validator({**schema, "components": DOCUMENT["components"]}).validate(value)


def params_of(method):
    return [resolved(param) for param in METHODS[method]["params"]]


@pytest.fixture(scope="module", name="real")
def values_of_this_chain():
    """Replacements for the examples' transaction and block, which exist on this chain."""
    transaction = run(mint(SEEDED))
    block = run(node.get_block_with_tx_hashes("latest"))
    return {
        "transaction_hash": lambda _: hex(transaction),
        "block_id": lambda given: (
            {"block_number": block.block_number} if isinstance(given, dict) else given
        ),
    }


def ask(method, params):
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    status, answer = run(post(GATEWAY, body))
    assert status == 200, answer
    return answer


def test_the_document_is_valid_openrpc():
    # The meta-schema's own name for the schema of schemas, and its only reference into it.
    core = {
        **Draft7Validator.META_SCHEMA,
        "definitions": {
            **Draft7Validator.META_SCHEMA["definitions"],
            "JSONSchemaObject": {"properties": {"$ref": {"type": "string"}}},
        },
    }
    resource = Resource(contents=core, specification=DRAFT7)
    urls = ("https://meta.json-schema.tools", "https://meta.json-schema.tools/")
    registry = Registry().with_resources([(url, resource) for url in urls])
    Draft7Validator(META_SCHEMA, registry=registry).validate(DOCUMENT)


@pytest.mark.parametrize("method, example", EXAMPLES)
def test_an_example_conforms_to_its_schema(method, example):
    given = {param["name"]: param["value"] for param in example["params"]}
    for param in params_of(method):
        assert param["name"] in given or not param.get("required"), param["name"]
        if param["name"] in given:
            check(param["schema"], given.pop(param["name"]))
    assert not given, "no other parameters"
    if "result" in example:
        check(METHODS[method]["result"]["schema"], example["result"]["value"])


@pytest.mark.parametrize("by", ["name", "position"])
@pytest.mark.parametrize("method, example", EXAMPLES)
def test_the_response_to_an_example_conforms_to_its_schema(method, example, by, real):
    given = {param["name"]: param["value"] for param in example["params"]}
    given = {name: real.get(name, lambda value: value)(value) for name, value in given.items()}
    params = given if by == "name" else [given[param["name"]] for param in example["params"]]
    answer = ask(method, params)
    assert "error" not in answer, answer
    check(METHODS[method]["result"]["schema"], answer["result"])


LASTING = ["starknet_specVersion", "starknet_chainId", "starknet_getClassHashAt"]


@pytest.mark.parametrize("method", LASTING)
def test_a_constant_equals_its_example(method):
    (example,) = METHODS[method]["examples"]
    answer = ask(method, {param["name"]: param["value"] for param in example["params"]})
    assert answer["result"] == example["result"]["value"]


BALANCE = METHODS["starknet_call"]["examples"][0]["params"][0]["value"]
ESTIMATE = METHODS["starknet_estimateFee"]["examples"][0]["params"][0]["value"]

# The method, its parameters, and the code of the node's error.
ERRORS = [
    ("starknet_getBlockWithTxHashes", [{"block_number": 10**9}], 24),
    ("starknet_getTransactionByHash", [NOWHERE], 29),
    ("starknet_getTransactionReceipt", [NOWHERE], 29),
    ("starknet_getTransactionStatus", [NOWHERE], 29),
    ("starknet_getClassHashAt", ["latest", NOWHERE], 20),
    ("starknet_getClassHashAt", [{"block_number": 10**9}, hex(SEEDED)], 24),
    ("starknet_getClass", ["latest", NOWHERE], 28),
    ("starknet_getClass", [{"block_hash": NOWHERE}, hex(ACCOUNT_CLASS)], 24),
    ("starknet_getClassAt", ["latest", NOWHERE], 20),
    ("starknet_getNonce", ["latest", NOWHERE], 20),
    ("starknet_call", [{**BALANCE, "contract_address": NOWHERE}, "latest"], 20),
    ("starknet_call", [{**BALANCE, "entry_point_selector": "0x1"}, "latest"], 21),
    ("starknet_call", [{**BALANCE, "calldata": []}, "latest"], 40),
    ("starknet_estimateFee", [[{**ESTIMATE[0], "calldata": []}], ["SKIP_VALIDATE"], "latest"], 41),
]


@pytest.mark.parametrize("method, params, code", ERRORS)
def test_an_error_of_the_node_is_documented(method, params, code):
    error = ask(method, params)["error"]
    assert error["code"] == code, error
    stated = [resolved(one) for one in METHODS[method]["errors"]]
    assert (code, error["message"]) in [(one["code"], one["message"]) for one in stated], error


# Invalid parameters: too many, an unknown one, one of another form.
MISFITS = {"block_id": "newest", "contract_address": "1", "class_hash": "0x", "request": {}}


@pytest.mark.parametrize("method", METHODS)
def test_undocumented_parameters_are_refused(method):
    names = [param["name"] for param in params_of(method)]
    (given, *_) = METHODS[method]["examples"]
    good = {param["name"]: param["value"] for param in given["params"]}
    bad = [{**good, "more": 1}, [*good.values(), *["0x1"] * (4 - len(good))]]
    bad += [{**good, name: MISFITS[name]} for name in names if name in MISFITS]
    bad += [{key: value for key, value in good.items() if key != name} for name in good]
    optional = {param["name"] for param in params_of(method) if not param.get("required")}
    for params in bad:
        if isinstance(params, dict) and set(good) - set(params) & optional:
            continue
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        status, answer = run(post(GATEWAY, body))
        assert (status, answer["error"]["data"]["reason"]) == (400, "invalid_params"), answer
