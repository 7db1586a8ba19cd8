"""Lists the documented responses that no test saw.

In: the file with every response that tests/it saw (PORTCULLIS_SEEN), and documents of conf/openapi.
Out: each operation and status that is missing there, and exit code 1 if there is one.
"""

import sys
from pathlib import Path

import yaml

METHODS = ("get", "post", "put", "options")


def stated(document):
    """Surface, method, path and status of each response of an operation."""
    surface = document.stem
    for path, operations in yaml.safe_load(document.read_text())["paths"].items():
        for method in METHODS:
            for status in operations.get(method, {}).get("responses", {}):
                yield f"{surface} {method.upper()} {path} {status}"


def main(seen_file, *documents):
    seen = set(Path(seen_file).read_text().splitlines())
    all_stated = [answer for name in documents for answer in stated(Path(name))]
    missing = [answer for answer in all_stated if answer not in seen]
    print(f"{len(all_stated) - len(missing)} of {len(all_stated)} documented answers seen")
    for answer in missing:
        print(f"not seen: {answer}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
