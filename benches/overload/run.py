"""What an overloaded node serves, alone and behind one or more programs: see README.md.

    python3 benches/overload/run.py [--seconds N] [--loads 0.5,1,2,4] [PROGRAM…]
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "tests" / "lib"))

from ports import free_port

WORKERS, WORK = 8, 0.08
CAPACITY = WORKERS / WORK
CLIENTS, MODEST = 600, 40


@contextlib.contextmanager
def child(*command, **more):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def get(port, path="/"):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
        return response.read()


def until_up(port, path="/"):
    for _ in range(300):
        try:
            return get(port, path)
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"nothing answers at port {port}")


@contextlib.contextmanager
def served(program, node, folder):
    """The port and the path that clients of the node use: its own without a program."""
    if program is None:
        yield node, "/"
        return
    port, admin = free_port(), free_port()
    env = {
        **os.environ,
        "PORTCULLIS__NODE__URL": f"http://127.0.0.1:{node}/",
        "PORTCULLIS__GATEWAY__LISTEN": f"127.0.0.1:{port}",
        "PORTCULLIS__GATEWAY__CONNECTIONS__MAX_PER_CLIENT": "10000",
        "PORTCULLIS__ADMIN__LISTEN": f"127.0.0.1:{admin}",
    }
    config = folder / "empty.toml"
    config.write_text("")
    with child(program, "serve", "--config", config, cwd=folder, env=env):
        until_up(port, "/healthz")
        yield port, "/rpc"



def measure(program, load, seconds):
    node = free_port()
    with tempfile.TemporaryDirectory() as folder, child(
        sys.executable, HERE / "node.py", str(node), str(WORKERS), str(WORK)
    ):
        until_up(node)
        with served(program, node, Path(folder)) as (port, path):
            get(node)
            command = [sys.executable, HERE / "load.py", str(port), path, str(load * CAPACITY)]
            command += [str(seconds), str(CLIENTS), str(MODEST)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            return {**found, **json.loads(get(node))}


def shown(seconds):
    return "–" if seconds is None else f"{seconds:.2f} s"


def row(program, load, found):
    refused = sum(count for end, count in found["ends"].items() if end != "answered")
    modest = sum(count for end, count in found["modest"].items() if end != "answered")
    all_modest = sum(found["modest"].values())
    cells = [
        f"{load:g} ×",
        program or "the node alone",
        f"{found['rate']:.0f}/s",
        shown(found["p50"]),
        shown(found["p99"]),
        f"{refused} of {sum(found['ends'].values())}",
        shown(found["slowest_refusal"]),
        f"{modest} of {all_modest}",
        str(found["most"]),
    ]
    print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=25)
    parser.add_argument("--loads", default="0.5,1,2,4")
    parser.add_argument("programs", nargs="*")
    given = parser.parse_args()
    names = ["load", "program", "answers", "p50", "p99", "not answered", "slowest of these"]
    names += ["of modest clients", "most calls at the node"]
    print("| " + " | ".join(names) + " |")
    print("|---" * len(names) + "|")
    for load in map(float, given.loads.split(",")):
        for program in [None, *map(os.path.abspath, given.programs)]:
            row(program, load, measure(program, load, given.seconds))


if __name__ == "__main__":
    main()
