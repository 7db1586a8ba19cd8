#!/usr/bin/env python3
"""Checks alerts, recording rules and the dashboard against the metrics of a running program.

    PORTCULLIS=target/debug/portcullis tests/prometheus/run.py

A real Prometheus scrapes a real Portcullis through the shipped configuration. Then every name in a
rule or a panel must exist, and every metric must be used by one, or be listed below.
"""

import re
import sys
import tempfile
from pathlib import Path

from dashboard import Dashboard
from promql import family, names, selectors
from world import ROOT, Portcullis, Prometheus

RUNBOOK = "conf/prometheus/RUNBOOK.md"

# An external label of Prometheus, or else its own page of alerts.
BASE = '{{ or $externalLabels.runbook (print $externalURL "/alerts") }}'

# Exported metrics that are deliberately on no panel and in no alert.
UNUSED = set()


def anchors():
    """The sections of the runbook, as anchors."""
    headings = re.findall(r"^#+ (.+)$", (ROOT / RUNBOOK).read_text(), re.M)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def expressions(rules, dashboard):
    """Every expression with its location."""
    yield from ((f"rule {rule['name']}", rule["query"]) for rule in rules)
    yield from dashboard.queries()


def what_is_queried_exists(prometheus, queries):
    """Checks each name, and each label value in a matcher."""
    for place, expression in queries:
        for selector in sorted(set(selectors(expression))):
            if not prometheus.series(selector):
                yield f"{place}: there is no {selector}"


def every_metric_is_queried(families, queries):
    """Checks that a rule or a panel uses each metric, and that the lists above are correct."""
    used = {family(name) for _, expression in queries for name in names(expression)}
    yield from (f"{name} is on no panel and in no rule" for name in families - used - UNUSED)
    yield from (f"{name} is listed as unused, and used" for name in UNUSED & used)
    yield from (f"{name} is listed as unused, and not shown" for name in UNUSED - families)


def panels_show_something(prometheus, dashboard):
    """Checks that each query is valid, and matches a series of a running program."""
    for place, expression in dashboard.queries():
        try:
            found = prometheus.query(expression)
        except AssertionError as error:
            yield f"{place}: {error}"
        else:
            if not found:
                yield f"{place} shows nothing: {expression}"


def rules_are_whole(rules):
    """Checks that rules evaluate; an alert has a severity, a summary and a runbook link."""
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
        if rule["annotations"].get("runbook_url") != f"{BASE}#{name.lower()}":
            yield f"{name} leads elsewhere: {rule['annotations'].get('runbook_url')}"
        if name.lower() not in sections:
            yield f"{name} has no section in the runbook"
        if f'alertname="{name}"' not in tested:
            yield f"{name} has no test"
        if rule["state"] == "firing":
            yield f"{name} fires, though all is well: {rule['alerts']}"


def inhibitions_are_known(rules):
    """Checks that each alternative of a matcher in alertmanager.yml is the name of an alert."""
    text = (ROOT / "conf/prometheus/alertmanager.yml").read_text().replace("\\\n", "")
    alerts = [rule["name"] for rule in rules if rule["type"] == "alerting"]
    for matcher in re.findall(r'alertname =~? \\?"([^"\\]*)', re.sub(r"\s*\|\s*", "|", text)):
        for name in matcher.split("|"):
            if not any(re.fullmatch(name, alert) for alert in alerts):
                yield f"alertmanager.yml names {name}, which is no alert"


def documents_are_true(rules, dashboard, families):
    """Checks that the runbook has a section for each alert, and names existing metrics."""
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
            queries = list(expressions(rules, dashboard))
            wrong += rules_are_whole(rules)
            wrong += inhibitions_are_known(rules)
            wrong += what_is_queried_exists(prometheus, queries)
            wrong += every_metric_is_queried(families, queries)
            wrong += panels_show_something(prometheus, dashboard)
            wrong += documents_are_true(rules, dashboard, families)
        finally:
            for one in reversed(started):
                one.end()
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{len(families)} metrics, {len(rules)} rules, {len(queries)} expressions", end=": ")
    print(f"{len(wrong)} wrong" if wrong else "all as they must be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
