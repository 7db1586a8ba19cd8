"""Judges a compose file as Docker does when it starts it, which no schema can: mounts, roots that are
read-only, health checks and the users that read secrets.

    judge(document, base, configurations)

The document is parsed, its paths are relative to `base`, and `configurations` has the text of each of
its configs.
"""

import copy
import tomllib
from urllib.parse import urlsplit

# whom the images run as, where the file does not say
IMAGE_USERS = {
    "portcullis": "65532",
    "postgres": "root",
    "valkey/valkey": "root",
    "prom/prometheus": "65534",
    "grafana/grafana": "472",
    "shardlabs/starknet-devnet-rs": "root",
}
# the owner of the secrets, which are readable by their owner only
READER = "65532"


def judge(document, base, configurations):
    for name, service in document["services"].items():
        mounts(name, service, document, base)
        secrets(name, service)
        dependencies(name, service, document["services"])
        if service["image"].startswith("portcullis:") and "command" not in service:
            health(name, service, configurations)


def mounts(name, service, document, base):
    """Each source exists, each target is mounted once, and none needs a write to a read-only place."""
    targets, read_only = [], []
    for volume in service.get("volumes", []):
        source, target, *options = volume.split(":")
        named = not source.startswith((".", "/"))
        exists = source in document["volumes"] if named else (base / source).exists()
        assert exists, f"{name}: {source} does not exist"
        targets.append(target)
        if "ro" in options:
            read_only.append(target)
    for use in service.get("configs", []):
        source, targets = use["source"], [*targets, use["target"]]
        config = document["configs"][source]
        inline = "content" in config or "environment" in config
        assert not (inline and service.get("read_only")), f"{name}: {source} has no file to mount"
        assert inline or (base / config["file"]).is_file(), f"{name}: {config['file']} does not exist"
    targets += [mount.split(":")[0] for mount in service.get("tmpfs", [])]
    assert len(targets) == len(set(targets)), f"{name}: two mounts at one of {targets}"
    for target in targets:
        parents = [place for place in read_only if target.startswith(f"{place}/")]
        assert not parents, f"{name}: {target} would be created in {parents}, which is read-only"


def user(service):
    image = service["image"].rpartition(":")[0]
    return str(service.get("user", IMAGE_USERS[image])).split(":")[0]


def secrets(name, service):
    """Whoever mounts the secrets is their owner, or root with the capability to read any file."""
    mounted = [volume for volume in service.get("volumes", []) if volume.startswith("secrets")]
    if not mounted:
        return
    is_instance = "command" not in service and service["image"].startswith("portcullis:")
    has_all = any(volume.startswith("secrets:") for volume in mounted)
    assert not has_all or is_instance or name == "secrets", f"{name}: it needs not all secrets"
    as_root = user(service) in ("root", "0") and "ALL" not in service.get("cap_drop", [])
    assert user(service) == READER or as_root, f"{name}: user {user(service)} cannot read the secrets"


def dependencies(name, service, services):
    for other, dependency in service.get("depends_on", {}).items():
        condition = dependency["condition"]
        needed = services[other]
        if condition == "service_healthy":
            assert "healthcheck" in needed, f"{name}: {other} is never healthy"
        if condition == "service_completed_successfully":
            assert "restart" not in needed, f"{name}: {other} never completes"


def health(name, service, configurations):
    """The health check asks the admin listener as it is configured: port, TLS and authority."""
    (config,) = (configurations[use["source"]] for use in service["configs"])
    admin = tomllib.loads(config)["admin"]
    form, program, command, *options, url = service["healthcheck"]["test"]
    assert (form, program, command) == ("CMD", "/usr/bin/portcullis", "probe"), f"{name}: {form}"
    asked, (host, _, port) = urlsplit(url), admin["listen"].rpartition(":")
    assert asked.port == int(port), f"{name}: {url} is not {admin['listen']}"
    assert host in ("0.0.0.0", asked.hostname), f"{name}: {url} is not {admin['listen']}"
    assert asked.path == "/readyz", f"{name}: {url} is not readiness"
    scheme = "https" if "tls" in admin else "http"
    assert asked.scheme == scheme, f"{name}: {url}, and the listener speaks {scheme}"
    if scheme == "https":
        authority = options[options.index("--ca-file") + 1] if "--ca-file" in options else ""
        targets = [volume.split(":")[1] for volume in service["volumes"]]
        mounted = any(authority.startswith(f"{target}/") for target in targets)
        assert mounted, f"{name}: no --ca-file out of a mount, for the certificate of {url}"


def inline(document, _):
    document["configs"]["portcullis"] = {"content": "[node]"}


def missing_file(document, _):
    document["configs"]["portcullis"] = {"file": "./nothing.toml"}


def missing_folder(document, _):
    document["services"]["prometheus"]["volumes"].append("../nothing:/nothing:ro")


def inside_read_only(document, _):
    document["services"]["prometheus"]["volumes"].append("../fleet:/secrets/fleet:ro")


def other_reader(document, _):
    del document["services"]["prometheus"]["user"]


def all_secrets(document, _):
    document["services"]["prune"]["volumes"] = ["secrets:/secrets:ro"]


def root_without_capabilities(document, _):
    document["services"]["postgres"]["cap_drop"] = ["ALL"]


def other_port(document, _):
    document["services"]["portcullis-1"]["healthcheck"] = {
        "test": ["CMD", "/usr/bin/portcullis", "probe", "http://127.0.0.1:8084/readyz"]
    }


def plain_probe_of_tls(_, configurations):
    configurations["portcullis"] += '\ntls = { certificate = "a.pem", key = "a.key" }\n'


def unknown_authority(document, configurations):
    plain_probe_of_tls(document, configurations)
    document["services"]["portcullis-1"]["healthcheck"] = {
        "test": ["CMD", "/usr/bin/portcullis", "probe", "https://127.0.0.1:8083/readyz"]
    }


def never_healthy(document, _):
    del document["services"]["valkey"]["healthcheck"]


MISTAKES = [
    inline,
    missing_file,
    missing_folder,
    inside_read_only,
    other_reader,
    all_secrets,
    root_without_capabilities,
    other_port,
    plain_probe_of_tls,
    unknown_authority,
    never_healthy,
]


def refuses_mistakes(document, base, configurations):
    """Each mistake that Docker would refuse, or that would never become healthy, is seen."""
    for mistake in MISTAKES:
        changed, texts = copy.deepcopy(document), dict(configurations)
        mistake(changed, texts)
        try:
            judge(changed, base, texts)
        except AssertionError as refusal:
            print(f"compose.yaml, {mistake.__name__}: {refusal}")
        else:
            raise AssertionError(f"{mistake.__name__} is not seen")
