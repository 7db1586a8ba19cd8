"""Judges an image layout by its specification, and unpacks it as a container runtime does.

    image.py unpack FILE FOLDER
"""

import gzip
import hashlib
import io
import json
import re
import sys
import tarfile
from pathlib import Path

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def sha256(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Layout:
    def __init__(self, path):
        with tarfile.open(path) as tar:
            self.files = {entry.name: tar.extractfile(entry).read() for entry in tar if entry.isfile()}
        self.used = {"oci-layout", "index.json", "manifest.json"}

    def json(self, name):
        return json.loads(self.files[name])

    def blob(self, descriptor):
        name = f"blobs/{descriptor['digest'].replace(':', '/')}"
        content = self.files[name]
        self.used.add(name)
        assert sha256(content) == descriptor["digest"], f"{name} has another digest"
        assert len(content) == descriptor["size"], f"{name} has another size"
        return content


def read(path):
    """The configuration and the layers, as tar files, of the one image in a layout."""
    layout = Layout(path)
    assert layout.json("oci-layout") == {"imageLayoutVersion": "1.0.0"}
    index = layout.json("index.json")
    assert (index["schemaVersion"], index["mediaType"]) == (2, INDEX)
    (descriptor,) = index["manifests"]
    assert descriptor["mediaType"] == MANIFEST
    manifest = json.loads(layout.blob(descriptor))
    assert (manifest["schemaVersion"], manifest["mediaType"]) == (2, MANIFEST)
    config = json.loads(layout.blob(manifest["config"]))
    platform = {name: config[name] for name in ["architecture", "os"]}
    assert descriptor["platform"] == platform
    layers = [gzip.decompress(layout.blob(layer)) for layer in manifest["layers"]]
    assert config["rootfs"]["diff_ids"] == [sha256(layer) for layer in layers]
    assert len(config["history"]) == len(layers)
    (docker,) = layout.json("manifest.json")
    named = [one["digest"].replace(":", "/") for one in [manifest["config"], *manifest["layers"]]]
    assert [docker["Config"], *docker["Layers"]] == [f"blobs/{name}" for name in named]
    assert layout.used == set(layout.files), layout.used ^ set(layout.files)
    return config, layers


def judge(config):
    of = config["config"]
    assert of["User"] == "65532:65532", "root in the image would be root on the machine"
    assert of["Entrypoint"] == ["/usr/bin/portcullis"] and of["Cmd"] == ["serve"]
    labels = {name.removeprefix("org.opencontainers.image.") for name in of["Labels"]}
    assert labels >= {"title", "version", "revision", "created", "licenses"}, labels
    # a variable would switch its section on, in every container
    assert of["Env"] == ["PATH=/usr/bin"], of["Env"]


def judge_entries(entries):
    files = {entry.name for entry in entries if entry.isfile()}
    programs = {name for name in files if re.match(r"(usr/)?s?bin/", name)}
    assert programs == {"usr/bin/portcullis"}, f"there is more than the program: {programs}"
    for entry in entries:
        assert entry.mode & 0o6000 == 0, f"{entry.name} runs as another user"
        writable = entry.mode & 0o022
        assert not writable or entry.name == "tmp", f"{entry.name} can be written by others"
        owner = 65532 if entry.name == "var/lib/portcullis" else 0
        assert (entry.uid, entry.gid) == (owner, owner), f"{entry.name} is of {entry.uid}"
    packages = {name.rpartition("/")[2] for name in files if "/dpkg/status.d/" in name}
    assert {"ca-certificates", "libc6"} <= packages, f"scanners find only {packages}"
    for package in packages | {"portcullis"}:
        assert any(name.startswith(f"usr/share/doc/{package}/") for name in files), package
    return packages


def main():
    action, path, folder = sys.argv[1:]
    assert action == "unpack"
    config, layers = read(path)
    judge(config)
    entries = []
    for layer in layers:
        with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
            names = tar.getnames()
            assert names == sorted(names) and len(names) == len(set(names))
            entries.extend(tar.getmembers())
            # the parameter of the same meaning is younger than Python 3.11
            tar.extraction_filter = lambda member, _folder: member
            tar.extractall(folder, numeric_owner=True)
    packages = judge_entries(entries)
    size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    print(f"{config['os']}/{config['architecture']}, {size >> 20} MiB, with {', '.join(sorted(packages))}")


if __name__ == "__main__":
    main()
