"""Assembles an OCI image without a daemon, from a binary and this machine's Debian packages.

In: the binary, its configuration and licences. Out: an image layout in a tar file, which `docker
load` reads as well. Two layers: the C library and certificates, which rarely change, and the
program. There is no shell and no package manager in it. The output depends on the inputs, the
versions of the packages and SOURCE_DATE_EPOCH alone.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
import time
from pathlib import Path

# by convention the user of images that do not run as root
USER = 65532
STATE = "var/lib/portcullis"
PASSWD = f"""root:x:0:0:root:/:/sbin/nologin
portcullis:x:{USER}:{USER}:portcullis:/{STATE}:/sbin/nologin
"""
GROUP = f"root:x:0:\nportcullis:x:{USER}:\n"
# without this file the C library queries DNS before it reads /etc/hosts
NSSWITCH = "passwd: files\ngroup: files\nhosts: files dns\n"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def epoch():
    return int(os.environ["SOURCE_DATE_EPOCH"])


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


class Layer:
    """The files of a layer by their path; folders above them are added."""

    def __init__(self):
        self.entries = {}

    def folder(self, path, mode=0o755, owner=0):
        self.entries[path] = (tarfile.DIRTYPE, mode, owner, b"")

    def file(self, path, content, mode=0o644):
        content = content.encode() if isinstance(content, str) else content
        self.entries[path] = (tarfile.REGTYPE, mode, 0, content)

    def tar(self):
        for path in list(self.entries):
            for above in Path(path).parents:
                if str(above) != "." and str(above) not in self.entries:
                    self.folder(str(above))
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for path, (kind, mode, owner, content) in sorted(self.entries.items()):
                add(tar, path, content, kind=kind, mode=mode, owner=owner)
        return out.getvalue()


def add(tar, path, content, kind=tarfile.REGTYPE, mode=0o644, owner=0):
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode, entry.mtime, entry.size = kind, mode, epoch(), len(content)
    entry.uid = entry.gid = owner
    tar.addfile(entry, io.BytesIO(content))


def libraries(binary, machine):
    """What the dynamic linker needs, as paths in the image and on this machine."""
    found, waiting = {}, [binary]
    interpreter = re.search(r"interpreter: (\S+)\]", run("readelf", "-lW", binary))[1]
    found[interpreter] = library(Path(interpreter).name, machine)
    while waiting:
        for name in re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "-dW", waiting.pop())):
            path = f"/lib/{machine}-linux-gnu/{name}"
            if path not in found and name != Path(interpreter).name:
                found[path] = library(name, machine)
                waiting.append(found[path])
    return found


def library(name, machine):
    # the last one is where Debian's packages for cross compilers are
    folders = ["/lib/{}-linux-gnu", "/usr/lib/{}-linux-gnu", "/usr/{}-linux-gnu/lib"]
    for folder in folders:
        path = Path(folder.format(machine)) / name
        if path.exists():
            return str(path)
    raise SystemExit(f"image: this machine has no {name} for {machine}")


def package_of(path):
    """The Debian package of a file; /usr/lib and /lib are one folder."""
    spellings = [path, path.removeprefix("/usr"), f"/usr{path}"]
    for spelling in dict.fromkeys([*spellings, os.path.realpath(path)]):
        query = ["dpkg-query", "--search", spelling]
        found = subprocess.run(query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if found.returncode == 0:
            return found.stdout.rpartition(": ")[0].split(",")[0]
    raise SystemExit(f"image: {path} is of no Debian package")


def certificates():
    """The public authorities of the package; /etc/ssl may have authorities of this machine."""
    folder = Path("/usr/share/ca-certificates/mozilla")
    texts = [path.read_text(encoding="ascii") for path in sorted(folder.glob("*.crt"))]
    if not texts:
        raise SystemExit("image: no certificates: Debian's ca-certificates")
    return "".join(texts)


def base(binary, machine):
    layer = Layer()
    for folder in ["dev", "etc", "proc", "run", "sys"]:
        layer.folder(folder)
    layer.folder("tmp", 0o1777)
    layer.folder(STATE, 0o700, USER)
    layer.file("etc/passwd", PASSWD)
    layer.file("etc/group", GROUP)
    layer.file("etc/nsswitch.conf", NSSWITCH)
    layer.file("etc/os-release", Path("/etc/os-release").read_bytes())
    layer.file("etc/ssl/certs/ca-certificates.crt", certificates())
    packages = {"ca-certificates"}
    for path, source in libraries(binary, machine).items():
        layer.file(path.lstrip("/"), Path(source).read_bytes(), 0o755)
        packages.add(package_of(source))
    for package in sorted(packages):
        # read by vulnerability scanners when there is no package manager
        status = run("dpkg-query", "--status", package)
        fields = re.findall(r"^(?:Package|Source|Status|Version|Architecture): .*\n", status, re.M)
        name = package.partition(":")[0]
        layer.file(f"var/lib/dpkg/status.d/{name}", "".join(fields))
        notice = Path(f"/usr/share/doc/{name}/copyright")
        layer.file(f"usr/share/doc/{name}/copyright", notice.read_bytes())
    return layer


def program(arguments):
    layer = Layer()
    layer.file("usr/bin/portcullis", Path(arguments.binary).read_bytes(), 0o755)
    layer.file("etc/portcullis/portcullis.toml", Path(arguments.config).read_bytes())
    for path, name in zip(arguments.licences, ["LICENSE", "THIRD-PARTY-LICENCES"], strict=True):
        layer.file(f"usr/share/doc/portcullis/{name}", Path(path).read_bytes())
    return layer


def config(arguments, created, diff_ids):
    labels = {
        "created": created,
        "description": "The edge in front of a private Starknet node",
        "licenses": "Apache-2.0",
        "revision": arguments.revision,
        "source": arguments.source,
        "title": "portcullis",
        "version": arguments.version,
    }
    return {
        "created": created,
        "architecture": ARCHITECTURES[arguments.machine],
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "ExposedPorts": {f"{port}/tcp": {} for port in range(8080, 8084)},
            "Env": ["PATH=/usr/bin"],
            "Entrypoint": ["/usr/bin/portcullis"],
            "Cmd": ["serve"],
            "WorkingDir": f"/{STATE}",
            "StopSignal": "SIGTERM",
            "Labels": {
                f"org.opencontainers.image.{name}": text for name, text in labels.items() if text
            },
        },
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": [
            {"created": created, "created_by": "the C library and certificates, of Debian"},
            {"created": created, "created_by": f"portcullis {arguments.version}"},
        ],
    }


class Layout:
    """An image layout: blobs by their digest."""

    def __init__(self):
        self.files = {"oci-layout": encode({"imageLayoutVersion": "1.0.0"})}

    def blob(self, media_type, content):
        digest = hashlib.sha256(content).hexdigest()
        self.files[f"blobs/sha256/{digest}"] = content
        media_type = f"application/vnd.oci.image.{media_type}"
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    def write(self, path):
        with tarfile.open(path, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for folder in ["blobs", "blobs/sha256"]:
                add(tar, folder, b"", kind=tarfile.DIRTYPE, mode=0o755)
            for name, content in sorted(self.files.items()):
                add(tar, name, content)


def encode(document):
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ["binary", "config", "machine", "out", "version"]:
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--licences", nargs=2, required=True)
    parser.add_argument("--level", type=int, default=9)
    parser.add_argument("--revision", default="")
    parser.add_argument("--source", default="")
    arguments = parser.parse_args()
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch()))
    layout = Layout()
    tars = [base(arguments.binary, arguments.machine).tar(), program(arguments).tar()]
    layers = [
        layout.blob("layer.v1.tar+gzip", gzip.compress(tar, arguments.level, mtime=0))
        for tar in tars
    ]
    diff_ids = [f"sha256:{hashlib.sha256(tar).hexdigest()}" for tar in tars]
    about = layout.blob("config.v1+json", encode(config(arguments, created, diff_ids)))
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": about,
        "layers": layers,
    }
    name = f"portcullis:{arguments.version}"
    described = layout.blob("manifest.v1+json", encode(manifest)) | {
        "annotations": {
            "io.containerd.image.name": f"docker.io/library/{name}",
            "org.opencontainers.image.ref.name": arguments.version,
        },
        "platform": {"architecture": ARCHITECTURES[arguments.machine], "os": "linux"},
    }
    layout.files["index.json"] = encode({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [described],
    })

    def path(one):
        return f"blobs/{one['digest'].replace(':', '/')}"

    # what `docker load` reads
    layout.files["manifest.json"] = encode([
        {"Config": path(about), "RepoTags": [name], "Layers": [path(one) for one in layers]}
    ])
    layout.write(arguments.out)


if __name__ == "__main__":
    main()
