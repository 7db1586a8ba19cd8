"""The table of attacks in SECURITY.md: a row of each file of this folder, between two markers."""

from pathlib import Path

DOCUMENT = Path(__file__).parents[3] / "SECURITY.md"
BEGIN, END = "<!-- attacks: tests/attack/run.py --write -->", "<!-- end of attacks -->"
HEAD = "| attack | published as | bound |\n|---|---|---|\n"


def row(name, attack):
    title = f"[{attack.title}](tests/attack/{name}.py)"
    return f"| {title} | {attack.published} | {attack.bounds()} |\n"


def rendered(attacks):
    rows = "".join(row(name, attack) for name, attack in sorted(attacks.items()))
    return f"{BEGIN}\n{HEAD}{rows}{END}"


def parts(document):
    """The document in front of the table, the table, and the document behind it."""
    before, _, rest = document.partition(BEGIN)
    table, end, after = rest.partition(END)
    return before, f"{BEGIN}{table}{end}", after


def is_current(attacks):
    return parts(DOCUMENT.read_text())[1] == rendered(attacks)


def write(attacks):
    before, _, after = parts(DOCUMENT.read_text())
    DOCUMENT.write_text(f"{before}{rendered(attacks)}{after}")
