#!/usr/bin/env python3
"""Alerts, recording rules and the dashboard against what a running program really shows.

    PORTCULLIS=target/debug/portcullis tests/prometheus/run.py

A real Prometheus scrapes a real Portcullis through the shipped configuration. Then everything that
a rule or a panel names must exist, and every metric must be named by one, or below.
"""

import re
import sys
import tempfile
from pathlib import Path

from dashboard import Dashboard
from promql import family, names, selectors
from world import ROOT, Portcullis, Prometheus

RUNBOOK = "conf/prometheus/RUNBOOK.md"

# Shown by the program, and deliberately on no panel and in no alert.
UNUSED = set()


def anchors():
    """The sections of the runbook, as links name them."""
    headings = re.findall(r"^#+ (.+)$", (ROOT / RUNBOOK).read_text(), re.M)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def expressions(rules, dashboard):
    """Every expression with the place where it stands."""
    yield from ((f"rule {rule['name']}", rule["query"]) for rule in rules)
    yield from dashboard.queries()


def what_is_asked_for_exists(prometheus, asked):
    """Each name, and each value of a label that a matcher names."""
    for place, expression in asked:
        for selector in sorted(set(selectors(expression))):
            if not prometheus.series(selector):
                yield f"{place}: there is no {selector}"


def what_is_shown_is_asked_for(families, asked):
    """Each metric of the program, by a rule or a panel; and the lists above are true."""
    used = {family(name) for _, expression in asked for name in names(expression)}
    yield from (f"{name} is on no panel and in no rule" for name in families - used - UNUSED)
    yield from (f"{name} is listed as unused, and used" for name in UNUSED & used)
    yield from (f"{name} is listed as unused, and not shown" for name in UNUSED - families)


def panels_show_something(prometheus, dashboard):
    """Each query is understood, and finds something in a program that runs."""
    for place, expression in dashboard.queries():
        try:
            found = prometheus.query(expression)
        except AssertionError as error:
            yield f"{place}: {error}"
        else:
            if not found:
                yield f"{place} shows nothing: {expression}"


def rules_are_whole(rules):
    """They evaluate; an alert says how bad it is, what it means, and where to read on."""
    tested = "".join(path.read_text() for path in (ROOT / "conf/prometheus/tests").iterdir())
    sections = anchors()
    for rule in rules:
        name = rule["name"]
        if rule["health"] != "ok":
            yield f"{name} is {rule['health']}: {rule.get('lastError')}"
        if rule["type"] != "alerting":
            continue
        if rule["labels"].get("severity") not in ("critical", "warning"):
            yield f"{name} has no severity"
        if missing := {"summary", "description", "runbook_url"} - rule["annotations"].keys():
            yield f"{name} has no {missing}"
        if rule["annotations"].get("runbook_url") != f"{RUNBOOK}#{name.lower()}":
            yield f"{name} leads elsewhere: {rule['annotations'].get('runbook_url')}"
        if name.lower() not in sections:
            yield f"{name} has no section in the runbook"
        if f'alertname="{name}"' not in tested:
            yield f"{name} has no test"
        if rule["state"] == "firing":
            yield f"{name} fires, though all is well: {rule['alerts']}"


def documents_are_true(rules, dashboard, families):
    """The runbook has a section for what there is, and names metrics that there are."""
    sections = anchors()
    alerts = {rule["name"].lower() for rule in rules if rule["type"] == "alerting"}
    dead = {one for one in sections if one.startswith("portcullis") and one not in alerts}
    yield from (f"the runbook's section {one} is for no alert" for one in dead - {"portcullis"})
    known = families | {rule["name"] for rule in rules} | {"up"}
    for name in names((ROOT / RUNBOOK).read_text()):
        if family(name) not in known:
            yield f"the runbook names {name}, which there is not"
    for place, anchor in dashboard.links():
        if anchor not in sections:
            yield f"{place} leads to {anchor}, which the runbook has not"


def main():
    dashboard = Dashboard()
    wrong = list(dashboard.faults())
    with tempfile.TemporaryDirectory(prefix="portcullis-prometheus-") as folder:
        started = []
        try:
            started.append(portcullis := Portcullis(Path(folder)))
            started.append(prometheus := Prometheus(Path(folder), portcullis.admin))
            portcullis.traffic()
            prometheus.await_samples()
            rules, families = prometheus.rules(), portcullis.families()
            asked = list(expressions(rules, dashboard))
            wrong += rules_are_whole(rules)
            wrong += what_is_asked_for_exists(prometheus, asked)
            wrong += what_is_shown_is_asked_for(families, asked)
            wrong += panels_show_something(prometheus, dashboard)
            wrong += documents_are_true(rules, dashboard, families)
        finally:
            for one in reversed(started):
                one.end()
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{len(families)} metrics, {len(rules)} rules, {len(asked)} expressions", end=": ")
    print(f"{len(wrong)} wrong" if wrong else "all as they must be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
