#!/usr/bin/env python3
"""Attacks the program from loopback and judges it. Each file of this folder is one published attack
and states its bounds: the memory that an attacking address may take, the wait of an honest client on
another address, and the memory that may be left a minute later.

    PORTCULLIS=target/debug/portcullis tests/attack/run.py [NAME[:TEXT]...]
    tests/attack/run.py --write     writes the table of SECURITY.md

`:TEXT` selects the cases and checks whose name contains it. With PORTCULLIS_TEST_LONG there are
more of them, and larger ones. Needs the Python packages of the clients' tests, and openssl. Exits 0
when every bound holds and the table is current.
"""
import importlib
import math
import os
import signal
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lib import table
from lib.attack import IS_LONG
from lib.judge import Trial, exceeded, mib, ms
from lib.world import Failed

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "run")
# Checks wait more than they compute, and judge no time.
CHECKS_AT_A_TIME = 3
# The percentage of an attack's cases that is played: fewer on a slow machine.
SHARE = int(os.environ.get("PORTCULLIS_TEST_SHARE", 100))


class Run:
    """The failures so far, and the programs whose memory after the attack is not yet judged."""

    def __init__(self):
        self.failed, self.pending = [], []

    def attempt(self, title, act):
        """Runs a step and keeps its failure; returns what it returned."""
        try:
            return act()
        except Failed as error:
            self.failed.append(f"{title}: {error}")
        except Exception:  # an attack that breaks judges nothing
            traceback.print_exc()
            self.failed.append(f"{title}: the attack broke")
        return None

    def case(self, name, number, case):
        """One case. The memory that it has left is judged once it is small, or after all cases."""
        started, title = time.monotonic(), f"{name}: {case.name}, {case.over}"
        trial = Trial(case, name, number)
        self.pending.append((title, trial))
        measured = self.attempt(title, trial.run)
        if measured is None:
            self.pending.pop()
            trial.end(failed=True)
            return
        bound = trial.bound
        wrong = exceeded(measured, bound, case.addresses)
        self.failed += [f"{title}: {what}" for what in wrong]
        print(f"{title}: {'FAILED' if wrong else 'ok'}, {time.monotonic() - started:.0f} s, "
              f"+{mib(measured.memory)} of {mib(bound.memory * case.addresses)} MiB, "
              f"{ms(measured.p99)} of {ms(bound.p99)} ms ({ms(trial.undisturbed)} before), "
              f"{trial.counts}", flush=True)
        self.settle(lambda trial: trial.is_small())

    def settle(self, is_ready):
        """Judges the memory that is left of the attacks that are ready."""
        for entry in [entry for entry in self.pending if is_ready(entry[1])]:
            self.pending.remove(entry)
            title, trial = entry
            left = trial.left()
            if left > trial.case.bound.left:
                self.failed.append(f"{title}: {mib(left)} MiB are left a minute later")
            trial.end(failed=False)

    def check(self, title, check):
        started, before = time.monotonic(), len(self.failed)
        self.attempt(title, check)
        failed = any(line.startswith(f"{title}: ") for line in self.failed[before:])
        outcome = "FAILED" if failed else "ok"
        print(f"{title}: {outcome}, {time.monotonic() - started:.0f} s", flush=True)

    def end(self):
        """Ends the programs that still run."""
        for _, trial in self.pending:
            trial.end(failed=False)


def selected(arguments):
    """The names, and of each the text that the cases and checks have to contain."""
    return [(name, text) for name, _, text in (one.partition(":") for one in arguments or NAMES)]


def judge(run, attacks, chosen):
    """The cases one after the other, then the checks."""
    for name, text in chosen:
        cases = [
            (number, case)
            for number, case in enumerate(attacks[name].cases)
            if text in case.name and (IS_LONG or not case.is_long)
        ]
        for number, case in cases[: math.ceil(len(cases) * SHARE / 100)]:
            run.case(name, number, case)
    with ThreadPoolExecutor(CHECKS_AT_A_TIME) as pool:
        for name, text in chosen:
            for check in attacks[name].checks:
                if text in check.__name__:
                    pool.submit(run.check, f"{name}: {check.__name__}", check)
    run.settle(lambda _: True)


def main(arguments):
    attacks = {name: importlib.import_module(name).ATTACK for name in NAMES}
    if arguments == ["--write"]:
        table.write(attacks)
        return 0
    # as an exception, so that what runs is ended
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    run = Run()
    if not table.is_current(attacks):
        run.failed.append("the table of SECURITY.md: run tests/attack/run.py --write")
    try:
        judge(run, attacks, selected(arguments))
    finally:
        run.end()
    for line in run.failed:
        print(f"FAILED {line}", file=sys.stderr)
    print(f"{len(attacks)} attacks, {len(run.failed)} failures")
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
