"""What a program is linked with, from Cargo's own metadata and Cargo.lock in the current folder.

    crates.py licences --target TRIPLE                  the licence texts of all crates
    crates.py sbom --target TRIPLE --binary FILE        a bill of materials, CycloneDX 1.6 in JSON
    crates.py audit --target TRIPLE                     the list that scanners find in a binary

Crates that only run at build time (build scripts, procedural macros) are in neither. The output
depends on the lock file, the binary and SOURCE_DATE_EPOCH alone.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
import tomllib
import uuid
import zlib
from pathlib import Path

# the files that state a crate's terms, at its root
TERMS = ("license", "licence", "copying", "copyright", "notice", "unlicense")


def cargo(*arguments):
    command = ["cargo", arguments[0], "--locked", *arguments[1:]]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def linked(target):
    """The root package, all packages in its binary by their id, and each one's dependencies."""
    metadata = json.loads(cargo("metadata", "--format-version=1", "--filter-platform", target))
    root = metadata["resolve"]["root"]
    # the metadata has the features of tests and build scripts as well, the tree has not
    tree = ["tree", "--edges=normal,no-proc-macro", "--prefix=none", "--format={p}"]
    lines = cargo(*tree, "--target", target, "--package", root).splitlines()
    in_binary = {tuple(line.replace(" v", " ", 1).split()[:2]) for line in lines}
    packages = {
        package["id"]: package
        for package in metadata["packages"]
        if (package["name"], package["version"]) in in_binary
    }
    needed = {
        node["id"]: sorted({
            dependency["pkg"]
            for dependency in node["deps"]
            if dependency["pkg"] in packages
            and any(kind["kind"] is None for kind in dependency["dep_kinds"])
        })
        for node in metadata["resolve"]["nodes"]
        if node["id"] in packages
    }
    return root, packages, needed


def by_name(packages):
    return sorted(packages.values(), key=lambda package: (package["name"], package["version"]))


def terms(package):
    """The licence files of a package."""
    folder = Path(package["manifest_path"]).parent
    named = package["license_file"]
    files = {folder / named} if named else set()
    files.update(path for path in folder.iterdir() if path.name.lower().startswith(TERMS))
    # a folder of them, as REUSE has it
    files.update(path for folder in list(files) if folder.is_dir() for path in folder.iterdir())
    return sorted(path for path in files if path.is_file())


def licences(target):
    """Each distinct text once, after the crates that it is of."""
    _, packages, _ = linked(target)
    texts = {}
    for package in by_name(packages):
        if package["source"] is None:
            continue
        name = f"{package['name']} {package['version']}"
        print(f"{name}: {package['license'] or 'see below'}")
        for path in terms(package):
            text = path.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n").strip()
            texts.setdefault(text, []).append(f"{name}, {path.name}")
    for text, of in texts.items():
        print(f"\n{'=' * 80}\n" + "\n".join(of) + f"\n{'-' * 80}\n{text}")


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def checksums():
    """The SHA-256 of each crate's archive, by name and version."""
    lock = tomllib.loads(Path("Cargo.lock").read_text(encoding="utf-8"))
    return {(one["name"], one["version"]): one.get("checksum") for one in lock["package"]}


def component(package, sums):
    described = {
        "type": "library",
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "scope": "required",
    }
    # others of this name may be in the registry
    if package["source"]:
        described["purl"] = purl(package)
    if package["description"]:
        described["description"] = " ".join(package["description"].split())
    if package["license"]:
        # older crates separate alternatives by a slash
        expression = package["license"].replace("/", " OR ")
        described["licenses"] = [{"expression": " ".join(expression.split())}]
    elif package["license_file"]:
        described["licenses"] = [{"license": {"name": f"{package['license_file']} of the crate"}}]
    checksum = sums.get((package["name"], package["version"]))
    if checksum:
        described["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"]:
        described["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return described


def compiler():
    version = subprocess.run(["rustc", "--version"], check=True, stdout=subprocess.PIPE, text=True)
    version = version.stdout.split()[1]
    return {
        "type": "framework",
        "bom-ref": f"rust-std@{version}",
        "name": "rust-std",
        "version": version,
        "scope": "required",
        "licenses": [{"expression": "MIT OR Apache-2.0"}],
    }


def sbom(target, binary):
    root, packages, needed = linked(target)
    digest = hashlib.sha256(Path(binary).read_bytes()).hexdigest()
    sums, std = checksums(), compiler()
    program = component(packages[root], sums) | {
        "type": "application",
        "purl": purl(packages[root]),
        "hashes": [{"alg": "SHA-256", "content": digest}],
        "properties": [{"name": "target", "value": target}],
    }
    above_std = {root: [std["bom-ref"]]}
    graph = [
        {
            "ref": purl(packages[package]),
            "dependsOn": sorted(purl(packages[on]) for on in others) + above_std.get(package, []),
        }
        for package, others in needed.items()
    ]
    graph.append({"ref": std["bom-ref"], "dependsOn": []})
    moment = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", moment),
            "component": program,
        },
        "components": [
            component(package, sums) for package in by_name(packages) if package["id"] != root
        ] + [std],
        "dependencies": sorted(graph, key=lambda one: one["ref"]),
    }
    json.dump(document, sys.stdout, indent=1)
    print()


def audit(target):
    """The section that cargo-auditable adds to a binary: its DESIGN.md, and PARSING.md."""
    root, packages, needed = linked(target)
    ordered = by_name(packages)
    places = {package["id"]: place for place, package in enumerate(ordered)}
    listed = []
    for package in ordered:
        source = package["source"] or "local"
        one = {
            "name": package["name"],
            "version": package["version"],
            "source": "crates.io" if source.startswith("registry+") else source,
            "dependencies": sorted(places[on] for on in needed[package["id"]]),
        }
        if not one["dependencies"]:
            del one["dependencies"]
        if package["id"] == root:
            one["root"] = True
        listed.append(one)
    document = json.dumps({"packages": listed}, separators=(",", ":")).encode()
    # stored as it is: compressors of other versions make other bytes
    sys.stdout.buffer.write(zlib.compress(document, 0))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["licences", "sbom", "audit"])
    parser.add_argument("--target", required=True)
    parser.add_argument("--binary")
    arguments = parser.parse_args()
    if arguments.what == "sbom":
        sbom(arguments.target, arguments.binary)
    elif arguments.what == "audit":
        audit(arguments.target)
    else:
        licences(arguments.target)


if __name__ == "__main__":
    main()
