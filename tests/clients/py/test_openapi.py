"""The running gateway and relay conform to their documents, as checked by Schemathesis."""

import json
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from openapi_spec_validator import validate

from world import GATEWAY, NODE

HERE = Path(__file__).parent
DOCUMENTS = HERE.parents[2] / "conf/openapi"
PORTCULLIS = os.environ["PORTCULLIS"]
SEED = "20261121"
PATIENCE = 60


@pytest.mark.parametrize("name", ["gateway", "relay", "admin"])
def test_a_document_is_valid_openapi(name):
    validate(yaml.safe_load((DOCUMENTS / f"{name}.yaml").read_text()))


def schemathesis(name, origin, folder, **environment):
    """Fails with Schemathesis' report."""
    command = [Path(sys.executable).with_name("schemathesis")]
    command += ["--config-file", HERE / "schemathesis.toml", "run", DOCUMENTS / f"{name}.yaml"]
    command += ["--url", origin, "--checks", "all", "--max-examples", "30", "--seed", SEED]
    command += ["--continue-on-failure", "--no-color"]
    env = {**os.environ, "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"}
    env |= {"SCHEMATHESIS_HOOKS": "schemathesis_hooks", **environment}
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    assert re.search(r"Test cases:\n +[1-9]", done.stdout), done.stdout[-2_000:]


def test_the_gateway_returns_no_undocumented_response(tmp_path):
    schemathesis("gateway", GATEWAY.removesuffix("/rpc"), tmp_path)


@contextmanager
def system(folder):
    """All surfaces in front of the node, with contracts of their own: their origins, and the folder
    of their secrets."""
    state = folder / "network"
    prepare = [PORTCULLIS, "dev", "--prepare", "--node", NODE, "--state", state]
    subprocess.run(prepare, check=True, capture_output=True, timeout=PATIENCE)
    surfaces = ("gateway", "relay", "sidecar", "admin")
    env = {f"PORTCULLIS__{surface.upper()}__LISTEN": "127.0.0.1:0" for surface in surfaces}
    env |= {"PORTCULLIS__LOG__FORMAT": "json", "PORTCULLIS__RELAY__REQUESTS_PER_MINUTE": "1000000"}
    log = folder / "log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [PORTCULLIS, "serve", "--config", state / "portcullis.toml"],
            env={**os.environ, **env},
            stderr=stderr,
        )
    try:
        yield {surface: listening(process, log, surface) for surface in surfaces}, state
    finally:
        process.terminate()
        status = process.wait(PATIENCE)
    assert status == 0, log.read_text()[-2_000:]


def listening(process, log, surface):
    """The surface's origin, once it is logged."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        for line in log.read_text().splitlines():
            entry = json.loads(line) if line.startswith("{") else {}
            if (entry.get("message"), entry.get("surface")) == ("listening", surface):
                return f"http://{entry['address']}"
        time.sleep(0.02)
    raise AssertionError(f"the {surface} does not listen")


def test_the_relay_returns_no_undocumented_response(tmp_path):
    with system(tmp_path) as (origins, state):
        token = (state / "relay.token").read_text().strip()
        schemathesis("relay", origins["relay"], tmp_path, RELAY_TOKEN=token)
