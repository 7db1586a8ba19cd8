#!/usr/bin/env python3
"""Replays outages against real parts: what is reported of each, and of its end.

    PORTCULLIS=target/debug/portcullis unshare --map-root-user --mount tests/outages/run.py

Of each outage the log, the metrics, `/readyz?verbose` and the page say the same within ten seconds;
a real Prometheus with the shipped rules fires the alert (`for` and the rates are shortened), and a
real Alertmanager with the shipped inhibitions sends one page. Every alert is fired by an outage.

With PORTCULLIS_TEST_LONG all are played, with names only those. PORTCULLIS_TEST_POSTGRES is a URL to
which the name of a database is appended. `unshare` is for the small file system that fills up;
where root runs it, without `--map-root-user`, which the server's socket does not know.
"""

import os
import re
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import conditions
import node
import process
import relay
import sidecar
from edge import Alertmanager, Devnet, shortened
from world import ROOT, Prometheus

# Outages that are played at a time. What takes long is only played by `tests/run long`.
SHORT = (
    (
        conditions.HungNode,
        conditions.DeadNode,
        conditions.LaggingNode,
        conditions.WrongChain,
        conditions.WrongPins,
        conditions.FullDisk,
        conditions.FullServerDisk,
        conditions.FleetStoreAway,
        conditions.ReplicaAway,
        conditions.StoreNotPruned,
        conditions.ExpiredCertificate,
        conditions.AuthorityAway,
        conditions.Flood,
    ),
    (
        process.Crashes,
        process.Drains,
        process.FewFiles,
        process.ManyConnections,
        process.ManyClients,
        process.BadReload,
        process.ForgottenRestart,
        node.HangingMethod,
        node.CuttingProxy,
        node.ErrorPages,
        node.StandingNode,
        node.ResetChain,
        sidecar.Strangers,
    ),
)
LONG = (
    (
        process.HungJournal,
        process.LargeAnswers,
        node.SlowNode,
        node.RollingBack,
        relay.EmptyFaucet,
        relay.SpentBudget,
        relay.LockedTables,
        relay.WrongClock,
    ),
    (
        relay.NoBlocks,
        relay.BusyFaucet,
        relay.LostAnswers,
        relay.StaleProxy,
        relay.Reverts,
        relay.RolledBack,
        relay.ReceiverFails,
        relay.DripReturns,
    ),
)


def attempt(outage, act):
    """Runs one act of an outage; whether it went well."""
    try:
        act()
        return True
    except Exception:
        traceback.print_exc()
        for log in sorted(outage.folder.glob("serve.log")):
            print(f"--- {outage.name}\n{log.read_text()[-4000:]}", file=sys.stderr)
        return False


def unlisted():
    """Alerts of the rules that no outage fires, and the reverse."""
    rules = "".join(path.read_text() for path in (ROOT / "conf/prometheus/rules").iterdir())
    fired = {alert for wave in SHORT + LONG for one in wave for alert in one.alerts}
    return sorted(set(re.findall(r"alert: (\w+)", rules)) ^ fired)


def play(outage):
    """Plays it; each alert that it lists must have fired."""
    began = time.monotonic()
    outage.play()
    assert outage.fired == set(outage.alerts), set(outage.alerts) - outage.fired
    print(f"{outage.name}: {time.monotonic() - began:.0f} s")


def run(wave):
    """Plays outages side by side; how many went well."""
    with tempfile.TemporaryDirectory(prefix="portcullis-outages-") as folder, ExitStack() as stack:
        folder = Path(folder)
        calm = Devnet(folder)
        stack.callback(calm.end)
        outages = [one(folder / one.__name__, stack, calm) for one in wave]
        pool = stack.enter_context(ThreadPoolExecutor(len(outages)))
        if not all(pool.map(lambda one: attempt(one, one.start), outages)):
            return 0
        alertmanager = Alertmanager(folder)
        stack.callback(alertmanager.end)
        targets = [one.edge.admin for one in outages]
        prometheus = Prometheus(
            folder, *targets, change=shortened, alertmanager=alertmanager.address
        )
        stack.callback(prometheus.end)
        prometheus.await_samples()
        early = prometheus.query('ALERTS{alertstate="firing"}')
        assert not early, f"before anything is broken: {early}"
        for one in outages:
            one.prometheus, one.alertmanager = prometheus, alertmanager
        return sum(pool.map(lambda one: attempt(one, lambda: play(one)), outages))


def main():
    if unlisted():
        print(f"not both in the rules and fired by an outage: {unlisted()}", file=sys.stderr)
        return 1
    names = sys.argv[1:]
    waves = SHORT + (LONG if names or "PORTCULLIS_TEST_LONG" in os.environ else ())
    waves = [[one for one in wave if not names or one.__name__ in names] for wave in waves]
    waves = [wave for wave in waves if wave]
    passed, played = sum(run(wave) for wave in waves), sum(map(len, waves))
    print(f"{passed} of {played} outages are reported as required")
    return 0 if passed == played else 1


if __name__ == "__main__":
    sys.exit(main())
