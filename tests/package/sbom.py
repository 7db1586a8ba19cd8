"""Judges a bill of materials: by the schema of CycloneDX, and by the binary that it is of.

    sbom.py FILE BINARY [PACKED]

PACKED, the binary as it is released, must have the same list for scanners, as cargo-auditable adds it.
"""

import json
import re
import subprocess
import sys
import zlib
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

# the sources of a crate, in the messages of its panics; those of the standard library are in its own
MENTIONED = re.compile(
    rb"(?<!/rust/deps)/([A-Za-z0-9_-]+?)-(\d+\.\d+\.\d+[0-9A-Za-z.+-]*)/src/"
)


def listed(binary):
    """The crates that scanners find in a binary."""
    command = ["objcopy", "--dump-section", ".dep-v0=/dev/stdout", binary, "/dev/null"]
    section = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    packages = json.loads(zlib.decompress(section))["packages"]
    assert [one["name"] for one in packages if one.get("root")] == ["portcullis"]
    needed = [on for one in packages for on in one.get("dependencies", [])]
    assert needed and max(needed) < len(packages)
    return {(one["name"], one["version"]) for one in packages}


def main():
    file, binary, *packed = sys.argv[1:]
    text = Path(file).read_text(encoding="utf-8")
    mistakes = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    assert mistakes is None, mistakes
    document = json.loads(text)
    components, program = document["components"], document["metadata"]["component"]
    names = {(one["name"], one["version"]) for one in [program, *components]}
    mentioned = {
        (name.decode(), version.decode())
        for name, version in MENTIONED.findall(Path(binary).read_bytes())
    }
    assert len(mentioned) > 50, f"the binary mentions {len(mentioned)} crates only"
    missing = mentioned - names
    assert not missing, f"in the binary, but not in the SBOM: {sorted(missing)}"
    # what only tests and builds need
    for name in ["criterion", "minijinja", "clap_derive", "boon"]:
        assert name not in {known for known, _ in names}, f"{name} is not in the binary"
    unknown = [one["name"] for one in components if "licenses" not in one]
    assert all(name.startswith("portcullis-") for name in unknown), f"without a licence: {unknown}"
    references = {one["bom-ref"] for one in components}
    references.add(program["bom-ref"])
    graph = {one["ref"]: one["dependsOn"] for one in document["dependencies"]}
    assert set(graph) == references, set(graph) ^ references
    assert all(on in references for needed in graph.values() for on in needed)
    for one in packed:
        assert listed(one) == names - {name for name in names if name[0] == "rust-std"}
    print(f"{len(components)} components, {len(mentioned)} of them mentioned by the binary")


if __name__ == "__main__":
    main()
