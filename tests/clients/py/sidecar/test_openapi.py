"""The running sidecar conforms to conf/openapi/sidecar.yaml, as checked by Schemathesis."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from openapi_spec_validator import validate

from content import VIEWER_USER
from server import ENGINES, LONG, WEBHOOK_SECRETS
from test_age import User

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[3] / "conf/openapi/sidecar.yaml"
SEED = "20261121"


def test_the_document_is_valid_openapi():
    validate(yaml.safe_load(DOCUMENT.read_text()))


# Responses have the same form on both engines.
@pytest.mark.parametrize("engine", ENGINES if LONG else ["sqlite"], indirect=True, scope="session")
def test_schemathesis_finds_no_undocumented_response(sidecar, tmp_path):
    user = User(sidecar, VIEWER_USER)
    words = ["run", DOCUMENT, "--url", f"http://{sidecar.address}", "--seed", SEED]
    words += ["--checks", "all", "--max-examples", "30", "--continue-on-failure", "--no-color"]
    done = subprocess.run(
        [
            Path(sys.executable).with_name("schemathesis"),
            "--config-file",
            HERE / "schemathesis.toml",
            *words,
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(HERE),
            "PYTHONDONTWRITEBYTECODE": "1",
            "SCHEMATHESIS_HOOKS": "schemathesis_hooks",
            "SIDECAR_SESSION": user.headers["Authorization"].split()[1],
            "SIDECAR_SUBJECT": user.subject(),
            "SIDECAR_SECRET": WEBHOOK_SECRETS[0],
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
