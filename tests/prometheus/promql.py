"""The names in a PromQL expression: enough of its grammar to find metrics and matchers."""

import re

# Names that the rules record, that the program exports, and that Prometheus adds to a scrape.
NAME = re.compile(r"\b(?:\w+:)?(?:portcullis|process)_\w+(?::\w+)?|\bup\b")
SELECTOR = re.compile(rf"({NAME.pattern})\s*(?:\{{([^}}]*)\}})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
# Labels that the dashboard's variables and Prometheus itself fill in.
TARGET = {"job", "instance"}


def names(expression):
    """Metrics and recorded series."""
    return set(NAME.findall(expression))


def family(name):
    """The metric that a series of a histogram belongs to."""
    return re.sub(r"_(bucket|sum|count)$", "", name)


def selectors(expression):
    """A selector for each name, and for each value in a matcher: each must match some series.

    `x{a=~"b|c",d!="e"}` is x, x{a="b"}, x{a="c"} and x{d="e"}.
    """
    for name, matchers in SELECTOR.findall(expression):
        yield name
        for label, _, values in MATCHER.findall(matchers):
            if label not in TARGET:
                yield from (f'{name}{{{label}="{value}"}}' for value in values.split("|"))
