"""Runs the Valkey of compose.yaml as its container would, with Debian's Redis in its place: only who
has the password gets in, and no argument and no variable of a process shows it.
"""

import os
import re
import shutil
import subprocess
import time

# The container's programs, as they are started here: what each was started with is noted first.
PROGRAMS = {
    "valkey-server": '{program} "$@" --port 0 --unixsocket {folder}/socket --dir {folder}',
    "valkey-cli": '{program} -s {folder}/socket "$@"',
}


def shows_no_secret(name, service):
    """What a shell substitutes is an argument or a variable, except in a here-document."""
    command, test = service.get("command", []), service.get("healthcheck", {}).get("test", [])
    for text in [*command, *test]:
        outside = re.sub(r"<<(\w+)\n.*?\n\1\n", "\n", text, flags=re.S)
        assert not re.search(r"\$\$\(|`", outside), f"{name}: {outside}"
    for variable, value in service.get("environment", {}).items():
        is_path = variable.endswith(("_FILE", "_DIRECTORY"))
        assert is_path or not re.search("password|secret|token|key", variable + value, re.I), variable


def shims(folder):
    """A folder with the container's programs."""
    # redis-tools has the server under another name
    server = shutil.which("redis-server") or shutil.which("redis-check-rdb")
    (folder / "redis-server").symlink_to(server)
    programs = {"valkey-server": folder / "redis-server", "valkey-cli": shutil.which("redis-cli")}
    for name, program in programs.items():
        line = PROGRAMS[name].format(program=program, folder=folder)
        noted = f"cat /proc/$$/cmdline /proc/$$/environ >{folder}/{name}.seen"
        (folder / name).write_text(f"#!/bin/sh\n{noted}\nexec {line}\n")
        (folder / name).chmod(0o755)


def shell(script, secrets, folder):
    """A script of the file as the container's shell gets it."""
    environment = {"PATH": f"{folder}:{os.environ['PATH']}"}
    script = script.replace("$$", "$").replace("/secrets", str(secrets))
    return subprocess.Popen(
        ["sh", "-euc", script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def keeps_its_password(service, secrets, folder):
    folder.mkdir()
    shims(folder)
    password = (secrets / "valkey.password").read_text().encode()
    _, test = service["healthcheck"]["test"]
    server = shell(service["command"][0], secrets, folder)
    try:
        until = time.monotonic() + 30
        while (check := shell(test, secrets, folder)).wait() != 0:
            log = check.stdout.read().decode()
            assert server.poll() is None, server.stdout.read().decode()
            assert time.monotonic() < until, log
        anybody = ["redis-cli", "-s", folder / "socket", "ping"]
        answer = subprocess.run(anybody, check=False, capture_output=True).stdout
        assert b"NOAUTH" in answer, answer
    finally:
        server.terminate()
        server.wait()
    for name in PROGRAMS:
        seen = (folder / f"{name}.seen").read_bytes()
        assert seen and password not in seen, f"{name} was started with the password"
    print("valkey: the password is required, and no argument or variable")
