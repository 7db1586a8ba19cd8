"""The schema of `portcullis config schema`, with an independent validator."""

import json
import os
import subprocess
import tomllib
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted(path for path in (ROOT / "conf").rglob("*.toml") if path.name != "image.toml")


@pytest.fixture(scope="module")
def validator():
    command = [os.environ["PORTCULLIS"], "config", "schema"]
    schema = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_shipped_files_conform(validator, path):
    validator.validate(tomllib.loads(path.read_text()))


@pytest.mark.parametrize(
    "text",
    [
        "[gatway]",
        "[gateway]\nlisten_on = 'a'",
        "[gateway]\nlisten = 8080",
        "[gateway]\ngzip = 'yes'",
        "[gateway]\nrequests_per_minute = 1.5",
        "[relay.pins.more]",
        "gateway = 1",
    ],
)
def test_mistakes_do_not(validator, text):
    assert not validator.is_valid(tomllib.loads(text)), text


def test_other_forms_conform(validator):
    text = """
    [node]
    url = ["http://a:1", "http://b:2"]
    [relay]
    token_files = "a.token"
    [trace]
    ratio = 1
    """
    validator.validate(tomllib.loads(text))


def test_an_editor_sees_meaning_and_default(validator):
    gateway = validator.schema["properties"]["gateway"]
    key = gateway["properties"]["requests_per_minute"]
    assert key["default"] == 180 and key["type"] == "integer"
    assert "Why:" in key["description"] and gateway["description"]
