#!/usr/bin/env python3
"""Runs a Prometheus with the shipped rules: prints the URL of its API, and ends with its input.

    PORTCULLIS=target/debug/portcullis tests/soak/prometheus.py FOLDER INTERVAL TARGET…
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "prometheus"))

from world import Prometheus


def main():
    folder, interval, *targets = sys.argv[1:]
    prometheus = Prometheus(Path(folder), *targets, interval=interval)
    try:
        print(prometheus.url, flush=True)
        sys.stdin.read()
    finally:
        prometheus.end()


main()
