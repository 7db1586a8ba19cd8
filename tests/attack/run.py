#!/usr/bin/env python3
"""Attacks the program from loopback, and judges how it bears them: what is refused, what is bounded,
and that another client's requests go on. Nothing is judged by its time.

    PORTCULLIS=target/debug/portcullis tests/attack/run.py [NAME...]

Needs the Python packages of the clients' tests, and openssl. Exits 0 when every attack is borne.
"""
import importlib
import sys
import time
import traceback

from lib.world import Failed

ATTACKS = ["nonreaders", "resets", "networks", "halfsent", "floods", "ambiguities"]


def main(names):
    failed = []
    for name in names or ATTACKS:
        started = time.monotonic()
        try:
            importlib.import_module(name).main()
            print(f"{name}: ok, {time.monotonic() - started:.0f} s", flush=True)
        except Failed as error:
            failed.append(f"{name}: {error}")
        except Exception:  # an attack that breaks judges nothing
            traceback.print_exc()
            failed.append(f"{name}: the attack broke")
    for line in failed:
        print(f"FAILED {line}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
