"""Judges compose.yaml and the Kustomize base by their schemas, compose.yaml as Docker starts it, and the
configurations in them by the program's own check.

    manifests.py PORTCULLIS FOLDER

Uses promtool and `kubectl kustomize`; FOLDER is for what it writes.
"""

import json
import os
import re
import secrets
import subprocess
import sys
import tomllib
from pathlib import Path

import kubernetes_validate
import yaml
from cloudcoil.models.prometheus_operator.v1 import PodMonitor, PrometheusRule
from compose_spec import PyOptions

import docker
import valkey

PACKAGE = Path("conf/package")
KUBERNETES = "1.32"
# what is elsewhere: a store of its own, for the check only
ELSEWHERE = {"PORTCULLIS__STORE__URL": "sqlite:check.db", "PORTCULLIS__STORE__PASSWORD_FILE": ""}
PARTS = ["gateway", "relay", "sidecar"]
LISTEN = {
    f"PORTCULLIS__{surface.upper()}__LISTEN": "127.0.0.1:0"
    for surface in ["gateway", "relay", "sidecar", "admin"]
}


def version():
    return tomllib.loads(Path("Cargo.toml").read_text())["workspace"]["package"]["version"]


def create(folder, files):
    """Secrets of these names, as an operator would create them."""
    folder.mkdir(parents=True)
    for file in files:
        # a key is a number below the order of the curve
        secret = f"0x{secrets.token_hex(30)}" if file.endswith(".key") else secrets.token_hex(32)
        (folder / file).write_text(secret)
        (folder / file).chmod(0o600)


def check(program, folder, name, text):
    """`portcullis check` accepts a configuration, with the secrets in the folder of its name."""
    home = folder / name
    named = set(re.findall(r'"([a-z]+\.(?:token|key|secret|password))"', text))
    made = {path.name for path in (home / "secrets").iterdir()}
    assert named == made, f"{name}: it names {named}, and there are {made}"
    (home / "portcullis.toml").write_text(text)
    configured = {f"PORTCULLIS__{section.upper()}__" for section in tomllib.loads(text)}
    changed = {
        name: value
        for name, value in (ELSEWHERE | LISTEN).items()
        if any(name.startswith(section) for section in configured)
    }
    environment = {"PATH": os.environ["PATH"], "CREDENTIALS_DIRECTORY": str(home / "secrets")}
    command = [program, "check", "--config", "portcullis.toml", "--format", "json"]
    done = subprocess.run(command, cwd=home, env=environment | changed, capture_output=True)
    assert done.returncode == 0, f"{name}: {done.stdout.decode()}{done.stderr.decode()}"
    print(f"{name}: {json.loads(done.stdout)['summary']}")


def compose(program, folder):
    path = PACKAGE / "compose.yaml"
    text = path.read_text()
    options = PyOptions()
    options.apply_merge = True
    options.from_yaml(text).validate()
    document = yaml.safe_load(text)
    services = document["services"]
    required = {"devnet", "valkey", "postgres", "prometheus", "grafana", "portcullis-1"}
    assert required <= set(services), required - set(services)
    for name, service in services.items():
        valkey.shows_no_secret(name, service)
        image, _, tag = service["image"].rpartition(":")
        assert image and tag != "latest", f"{name}: {service['image']} has no version"
        assert image != "portcullis" or tag == version(), f"{name}: another version than {version()}"
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name}: {port} is open to the network"
    contents = {
        name: (PACKAGE / config["file"]).read_text() for name, config in document["configs"].items()
    }
    docker.judge(document, PACKAGE, contents)
    docker.refuses_mistakes(document, PACKAGE, contents)
    made = folder / "compose.yaml" / "secrets"
    make_secrets(services["secrets"]["command"][0], made)
    own = made.with_name("secrets-valkey")
    valkey.keeps_its_password(services["valkey"], own, folder / "valkey")
    check(program, folder, "compose.yaml", contents["portcullis"])
    prometheus = folder / "prometheus.yml"
    prometheus.write_text(contents["prometheus"])
    promtool = ["promtool", "check", "config", "--syntax-only", prometheus]
    subprocess.run(promtool, check=True, stdout=subprocess.DEVNULL)
    scraped = yaml.safe_load(contents["prometheus"])["scrape_configs"][0]["static_configs"]
    targets = {target.split(":")[0] for target in scraped[0]["targets"]}
    assert targets == {name for name in services if name.startswith("portcullis-")}, targets


def make_secrets(script, folder):
    """Runs the script that makes the secrets of compose.yaml: once, and at a second start."""
    folder.mkdir(parents=True)
    parts = ("postgres.password", "valkey.password", "operator.token")
    own = {folder.with_name(f"secrets-{part.split('.')[0]}"): part for part in parts}
    for part in own:
        part.mkdir()
    script = script.replace("$$", "$").replace("/secrets", str(folder))
    before = None
    for _ in range(2):
        subprocess.run(["sh", "-euc", script], check=True)
        made = {path.name: path.read_text() for path in folder.iterdir()}
        assert before in (None, made), "a second start makes others"
        before = made
    for part, name in own.items():
        assert [path.name for path in part.iterdir()] == [name], part
    for path in (path for one in (folder, *own) for path in one.iterdir()):
        status = path.stat()
        assert (status.st_mode & 0o777, status.st_uid) == (0o600, 65532), path
        assert re.fullmatch("[0-9a-f]{64}", path.read_text()), path


def rendered(folder):
    command = ["kubectl", "kustomize", str(folder)]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return list(yaml.safe_load_all(text))


def is_before_1_21():
    """Whether `kubectl`, as in Debian 12, knows folders as bases only, which newer ones deprecate."""
    command = ["kubectl", "version", "--client", "--output=json"]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return int(re.match(r"\d+", found["clientVersion"]["minor"])[0]) < 21


def overlay(folder, readme):
    """The overlay in README.md replaces image and configurations, and its namespace is theirs."""
    text = re.search(r"```yaml\n# overlay/kustomization.yaml\n(.*?)```", readme, re.S)[1]
    if is_before_1_21():
        text = text.replace("resources:", "bases:")
        text = text.replace("patches:\n  - patch: |-", "patchesStrategicMerge:\n  - |-")
    (folder / "conf").symlink_to(Path("conf").resolve())
    (folder / "overlay").mkdir()
    (folder / "overlay" / "kustomization.yaml").write_text(text)
    for part in PARTS:
        (folder / "overlay" / f"{part}.toml").write_text(f"# of the {part}\n")
    objects = rendered(folder / "overlay")
    assert {one["metadata"]["namespace"] for one in objects} == {"portcullis"}
    for one in objects:
        if one["kind"] == "ConfigMap":
            assert one["data"]["portcullis.toml"].startswith("# of the "), one
        if one["kind"] == "Deployment":
            (container,) = one["spec"]["template"]["spec"]["containers"]
            assert container["image"] == f"registry.example/portcullis:{version()}", container
        if one["metadata"]["name"] == "portcullis-node":
            assert one["spec"]["egress"] == [{"ports": [{"port": 8545}]}], one


def alerts(readme):
    """The README's commands give the operator every rule, and no other object."""
    script = re.search(r"^for file in conf/prometheus.*?^done", readme, re.S | re.M)[0]
    made = subprocess.run(["sh", "-euc", script], check=True, stdout=subprocess.PIPE).stdout
    objects = list(yaml.safe_load_all(made))
    for one in objects:
        PrometheusRule.model_validate(one, extra="forbid")
    groups = [group for one in objects for group in one["spec"]["groups"]]
    files = sorted(Path("conf/prometheus/rules").glob("*.yml"))
    texts = [yaml.safe_load(file.read_text())["groups"] for file in files]
    assert groups == [group for text in texts for group in text]


def routes(by_kind):
    """Both examples send each path to a port that a Service has, and nothing to the relay."""
    examples = PACKAGE / "kubernetes" / "examples"
    ingress = yaml.safe_load((examples / "ingress.yaml").read_text())
    kubernetes_validate.validate(ingress, KUBERNETES, strict=True)
    (rule,) = ingress["spec"]["rules"]
    by_ingress = {
        path["path"]: (path["backend"]["service"]["name"], path["backend"]["service"]["port"]["name"])
        for path in rule["http"]["paths"]
    }
    by_route = {}
    for rule in yaml.safe_load((examples / "route.yaml").read_text())["spec"]["rules"]:
        (backend,) = rule["backendRefs"]
        ports = by_kind["Service"][backend["name"]]["spec"]["ports"]
        (port,) = [port["name"] for port in ports if port["port"] == backend["port"]]
        for match in rule["matches"]:
            by_route[match["path"]["value"]] = (backend["name"], port)
    assert by_route == by_ingress, (by_route, by_ingress)
    assert all(name != "portcullis-relay" for name, _ in by_route.values()), by_route


def prunes(by_kind):
    """The job reads the relay's configuration, of its secrets only the store's, and gets none of its
    requests."""
    (job,) = by_kind.pop("CronJob").values()
    template = job["spec"]["jobTemplate"]["spec"]["template"]
    labels = template["metadata"]["labels"]
    policy = by_kind["NetworkPolicy"][job["metadata"]["name"]]
    assert policy["spec"]["podSelector"]["matchLabels"] == labels
    assert "ingress" not in policy["spec"], policy
    for service in by_kind["Service"].values():
        assert service["spec"]["selector"] != labels, service
    relay = by_kind["Deployment"]["portcullis-relay"]["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    keys = [item["key"] for item in volumes["secrets"]["secret"].pop("items")]
    assert keys == ["postgres.password"], keys
    assert list(volumes.values()) == relay["volumes"], volumes
    (container,) = template["spec"]["containers"]
    assert container["args"][:2] == ["store", "prune"], container["args"]


def kubernetes(program, folder):
    objects = rendered(PACKAGE / "kubernetes")
    for one in objects:
        if one["kind"] == "PodMonitor":
            PodMonitor.model_validate(one, extra="forbid")
        else:
            kubernetes_validate.validate(one, KUBERNETES, strict=True)
    by_kind = {}
    for one in objects:
        by_kind.setdefault(one["kind"], {})[one["metadata"]["name"]] = one
    configs = {name.rpartition("-")[0]: one for name, one in by_kind["ConfigMap"].items()}
    prunes(by_kind)
    names = {f"portcullis-{part}" for part in PARTS}
    for kind in ["Deployment", "Service", "PodDisruptionBudget", "PodMonitor"]:
        assert set(by_kind[kind]) == names, kind
    assert set(by_kind["NetworkPolicy"]) > names, by_kind["NetworkPolicy"]
    (scaled,) = by_kind["HorizontalPodAutoscaler"].values()
    target = by_kind["Deployment"][scaled["spec"]["scaleTargetRef"]["name"]]
    assert "replicas" not in target["spec"], "it would undo the autoscaler's number"
    routes(by_kind)
    readme = (PACKAGE / "README.md").read_text().replace("\\\n", " ")
    for name, deployment in by_kind["Deployment"].items():
        pod = deployment["spec"]["template"]
        labels = pod["metadata"]["labels"]
        for kind in ["Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy", "PodMonitor"]:
            spec = by_kind[kind][name]["spec"]
            selector = spec.get("podSelector") or spec["selector"]
            assert selector.get("matchLabels", selector) == labels, f"{kind} {name}: {selector}"
        (container,) = pod["spec"]["containers"]
        assert container["image"] == f"portcullis:{version()}", container["image"]
        text = configs[name]["data"]["portcullis.toml"]
        surfaces = {
            port["name"]: f"0.0.0.0:{port['containerPort']}" for port in container["ports"]
        }
        configuration = tomllib.loads(text)
        assert {surface: configuration[surface]["listen"] for surface in surfaces} == surfaces
        drain = int(configuration["server"]["drain_delay"].removesuffix("s"))
        # the default of server.grace_period is 15 s
        assert pod["spec"]["terminationGracePeriodSeconds"] > drain + 15
        created = re.search(rf"secret generic {name}((?:\s+--from-file=\S+)+)", readme)[1]
        create(folder / name / "secrets", re.findall(r"=(\S+)", created))
        check(program, folder, name, text)
    overlay(folder, readme)
    alerts(readme)
    print(f"{len(objects)} objects of Kubernetes {KUBERNETES}")


def main():
    program, folder = sys.argv[1], Path(sys.argv[2])
    compose(program, folder)
    kubernetes(program, folder)


if __name__ == "__main__":
    main()
