"""The Grafana dashboard as data: its panels, their queries, and mistakes in its structure."""

import json
import re

from jsonschema import Draft7Validator

from promql import SELECTOR
from world import ROOT

FILE = ROOT / "conf/grafana/portcullis.json"
COLUMNS = 24
# Variables that Grafana fills in.
VARIABLES = {"$__rate_interval": "1m", "$instance": ".*", "$job": ".*"}
# Grafana's own types; its `$comment` says how they were made.
SCHEMA = json.loads((ROOT / "tests/prometheus/grafana.schema.json").read_text())
# Recorded constants, which belong to no process.
CONSTANTS = {"surface:portcullis_failures:budget"}


class Dashboard:
    """Parses the file."""

    def __init__(self):
        self.board = json.loads(FILE.read_text())
        self.panels = self.board["panels"]

    def queries(self):
        """The location and expression of each query and annotation, as Grafana would send it."""
        for panel in self.panels:
            for target in panel.get("targets", []):
                yield f"panel {panel['title']!r}", filled_in(target["expr"])
        for annotation in self.board["annotations"]["list"]:
            if "expr" in annotation:
                yield f"annotation {annotation['name']!r}", filled_in(annotation["expr"])

    def links(self):
        """The runbook anchors that its panels link to."""
        for panel in self.panels:
            for link in panel.get("links", []):
                yield f"panel {panel['title']!r}", link["url"].removeprefix("${runbook}#")

    def faults(self):
        """What Grafana would show wrongly or not at all."""
        yield from misfits("dashboard", self.board)
        yield from self.unfiltered()
        ids = [panel["id"] for panel in self.panels]
        yield from (f"id {one} is used twice" for one in set(ids) if ids.count(one) > 1)
        taken, overlaps = {}, set()
        for panel in self.panels:
            name = f"{panel['type']} {panel['title']!r}"
            place = panel["gridPos"]
            right = place["x"] + place["w"]
            if right > COLUMNS or min(place.values()) < 0:
                yield f"{name} is beyond the grid"
            for x in range(place["x"], right):
                for y in range(place["y"], place["y"] + place["h"]):
                    other = taken.setdefault((x, y), name)
                    if other != name:
                        overlaps.add(f"{name} lies over {other}")
            if panel["type"] not in ("row", "text"):
                yield from self.faults_of(name, panel)
        yield from overlaps

    def unfiltered(self):
        """Queries that show processes other than the selected ones."""
        parts = [target for panel in self.panels for target in panel.get("targets", [])]
        for part in (*parts, *self.board["annotations"]["list"]):
            expression = part.get("expr", "")
            alerts = re.findall(r"(\bALERTS)\{([^}]*)\}", expression)
            for name, matchers in (*SELECTOR.findall(expression), *alerts):
                if name in CONSTANTS:
                    continue
                for label in ("job", "instance"):
                    if f'{label}=~"${label}"' not in matchers:
                        yield f"{expression}: {name} of every {label}"

    def faults_of(self, name, panel):
        yield from misfits(panel["type"], panel["options"])
        defaults = panel["fieldConfig"]["defaults"]
        if panel["type"] == "timeseries":
            yield from misfits("timeseriesField", defaults.get("custom", {}))
        if not panel.get("description"):
            yield f"{name} does not say what it shows"
        if "unit" not in defaults:
            yield f"{name} has no unit"
        if not panel["targets"]:
            yield f"{name} asks nothing"
        letters = [target["refId"] for target in panel["targets"]]
        if len(set(letters)) < len(letters):
            yield f"{name} has two queries of one letter"
        known = {variable["name"] for variable in self.board["templating"]["list"]}
        used = set(re.findall(r"\$\{?([a-z]+)", json.dumps(panel)))
        yield from (f"{name} uses ${one}, which is no variable" for one in used - known)
        for part in (panel, *panel["targets"]):
            if part["datasource"] != {"type": "prometheus", "uid": "${datasource}"}:
                yield f"{name} asks one data source only"


def misfits(kind, value):
    """Where the value is not what Grafana expects of this kind."""
    schema = {**SCHEMA, **SCHEMA["properties"][kind]}
    del schema["properties"], schema["required"]
    for error in Draft7Validator(schema).iter_errors(value):
        yield f"{kind} {error.json_path}: {error.message[:200]}"


def filled_in(expression):
    """An expression with its variables replaced."""
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    return expression
