"""The Grafana dashboard as data: its panels, their queries, and mistakes in its structure."""

import json
import re

from world import ROOT

FILE = ROOT / "conf/grafana/portcullis.json"
COLUMNS = 24
# Variables that Grafana fills in.
VARIABLES = {"$__rate_interval": "1m", "$instance": ".*"}


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

    def faults_of(self, name, panel):
        defaults = panel["fieldConfig"]["defaults"]
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


def filled_in(expression):
    """An expression with its variables replaced."""
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    return expression
