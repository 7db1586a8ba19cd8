"""Judges what the workflows of .github run: every action is pinned by its digest, with its version in
a comment, and nothing that is downloaded runs before its digest is verified.
"""

import os
import re
import subprocess
import tempfile
from pathlib import Path

GITHUB = Path(".github")
PINNED = re.compile(r"[\w.-]+(/[\w.-]+)+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
DOWNLOAD = r"\b(?:curl|wget)\b"
SHELL = r"(?:\w+=\S*\s+|sudo\s+(?:-\S+\s+)*|env\s+|exec\s+)*(?:\S*/)?(?:(?:ba|da|z|k|a)?sh|python3?|perl)\b"
PIPED = re.compile(
    rf"{DOWNLOAD}[^\n;&]*\|\s*{SHELL}"
    rf"|{SHELL}[^\n]*?(?:<\(|\$\(|`)\s*{DOWNLOAD}"
    rf"|\b(?:eval|source|\.)\s[^\n]*?(?:<\(|\$\(|`)\s*{DOWNLOAD}"
)


def unpinned(text):
    """The actions of a workflow that another's tag or branch decides about."""
    used = re.findall(r"^[\s-]*[\"']?uses[\"']?\s*:\s*(.*?)\s*$", text, re.M)
    return [action for action in used if not action.startswith("./") and not PINNED.fullmatch(action)]


def piped(text):
    """The downloads that a shell runs unseen."""
    lines = re.sub(r"\|\s*\n\s*", "| ", text.replace("\\\n", " "))
    return [found.group() for found in PIPED.finditer(lines)]


def knows_what_it_refuses():
    digest = "0123456789abcdef" * 2 + "01234567"
    for action, why in {
        "actions/checkout@v5": "a tag",
        "actions/checkout@main # v5.0.0": "a branch",
        f"actions/checkout@{digest}": "no version",
        f"actions/checkout@{digest} # v5": "a version that moves",
        f"actions/checkout@{digest[:12]} # v5.0.0": "a part of a digest",
        "docker://debian:12": "a tag of an image",
    }.items():
        assert unpinned(f"    - uses: {action}\n") == [action], why
    for action in [f"actions/checkout@{digest} # v5.0.0", f"a/b/c@{digest} # v1.2.3", "./here"]:
        assert unpinned(f"      uses: {action}\n") == [], action
    for script in [
        "curl -fsS https://sh.rustup.rs | sh",
        "curl -fsS https://sh.rustup.rs |\n  sh -s -- -y",
        "curl -fsS \\\n  https://sh.rustup.rs | sudo -E bash",
        "wget -qO- https://x.example/install | /bin/bash",
        'sh -c "$(curl -fsS https://x.example)"',
        "bash <(curl -fsS https://x.example)",
        "source <(wget -qO- https://x.example)",
        'eval "$(curl https://x.example)"',
        "curl https://x.example | python3 -",
    ]:
        assert piped(script), script
    for script in ["curl -o file https://x.example\nsha256sum -c sums", "curl https://x | jq .sh"]:
        assert not piped(script), script


def a_forged_installer_does_not_run():
    with tempfile.TemporaryDirectory() as folder:
        ran, paths = Path(folder) / "ran", Path(folder) / "paths"
        curl = Path(folder) / "curl"
        forged = f"#!/bin/sh\n: >{ran}\n"
        # the option before the file is -o
        curl.write_text(
            '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\n'
            f"printf '%s' '{forged}' >\"$2\"\n"
        )
        curl.chmod(0o755)
        environment = os.environ | {
            "PATH": f"{folder}:{os.environ['PATH']}", "GITHUB_PATH": str(paths), "HOME": folder
        }
        done = subprocess.run(
            [GITHUB / "install-rust", "1.95.0"], env=environment, capture_output=True, check=False
        )
        output = done.stdout.decode() + done.stderr.decode()
        assert done.returncode != 0 and "computed checksum" in output, output
        assert not ran.exists() and not paths.exists(), "an installer of other contents ran"


def main():
    knows_what_it_refuses()
    files = [path for path in sorted(GITHUB.rglob("*")) if path.is_file()]
    assert any(path.suffix == ".yml" for path in files), files
    actions = 0
    for path in files:
        text = path.read_text()
        actions += len(re.findall(PINNED, text))
        wrong = unpinned(text) + piped(text)
        assert not wrong, f"{path}: {wrong}"
    assert actions > 0
    a_forged_installer_does_not_run()
    print(f"{actions} pinned actions")


if __name__ == "__main__":
    main()
