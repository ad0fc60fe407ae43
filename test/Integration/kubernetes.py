"""The files of deploy/kubernetes fit the schemas of Kubernetes, and the server: its ports, probes, metrics and options.

  kubernetes.py SOURCE MODEL PACKAGES      MODEL is models/stories, compiled

Installs kubernetes-validate in the folder PACKAGES once. Says so and passes where PyPI cannot be reached. In make test-full the schemas of
KServe and of the inference extension, which their Go modules have, are there, too.
"""
import json
import os
import pathlib
import re
import sys
import time
import warnings

from checks import Checks, full
from packages import go_module, import_from
from server import Server

SOURCE, MODEL, PACKAGES = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
FOLDER = SOURCE / "deploy/kubernetes"
if not import_from("kubernetes-validate==1.37.0", PACKAGES):
    print("skipped: no kubernetes-validate")
    sys.exit()
import jsonschema
import kubernetes_validate
import yaml

checks = Checks()
expect = checks.expect


def load(path):
    return yaml.safe_load((FOLDER / path).read_text())


def merged(base, patch):
    """`base` with a strategic merge: lists of objects go together by their names, and null removes."""
    if isinstance(base, list) and isinstance(patch, list) and all(isinstance(each, dict) and "name" in each for each in base + patch):
        names = [each["name"] for each in base]
        return [merged(next((old for old in base if old["name"] == each["name"]), {}), each) for each in patch] + \
               [each for each in base if each["name"] not in {new["name"] for new in patch}] if names else patch
    if not isinstance(base, dict) or not isinstance(patch, dict):
        return patch
    result = {**base, **{key: merged(base.get(key), value) for key, value in patch.items()}}
    return {key: value for key, value in result.items() if value is not None}


def validate(name, resource):
    for version in ("1.35", "1.37"):
        try:
            with warnings.catch_warnings(record=True):
                kubernetes_validate.validate(resource, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            checks.check(False, f"{name} for Kubernetes {version}: {error.message}")


def closed(schema):
    """A schema of a resource that takes no other members than it names, as `kubectl apply` checks them."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(value) for key, value in schema.items()}
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        result.setdefault("additionalProperties", False)
    return result


def validate_by_module(module, path, resource):
    """Compares a resource with the schema of its version that a Go module has in a file."""
    folder = go_module(module, PACKAGES)
    if not folder:
        print(f"skipped: no {module}")
        return
    definition = yaml.safe_load((folder / path).read_text())["spec"]
    group, version = resource["apiVersion"].split("/")
    schemas = [each["schema"]["openAPIV3Schema"] for each in definition["versions"] if each["name"] == version and each["served"]]
    expect(f"the kind of {path}", (definition["group"], definition["names"]["kind"], len(schemas)), (group, resource["kind"], 1))
    schema = closed(schemas[0])
    # Kubernetes's own, which every resource has.
    schema["properties"]["metadata"] = {"type": "object"}
    for error in jsonschema.Draft202012Validator(schema).iter_errors(resource):
        checks.check(False, f"{resource['kind']} by {module}: {'.'.join(map(str, error.path))}: {error.message[:300]}")


names = load("kustomization.yaml")["resources"]
files = {name: load(name) for name in names}
others = {"kustomization.yaml", "prometheus-adapter.yaml", "serving-runtime.yaml", "inference-pool.yaml"}
expect("the files", {path.name for path in FOLDER.glob("*.yaml")}, others | set(names))
deployment, service, autoscaler, disruption, network = (files[name] for name in names)
image = merged(deployment, load("image-volume/volume.yaml"))
for name, resource in {**files, "the image volume": image}.items():
    validate(name, resource)
expect("the image volume", [sorted(volume) for volume in image["spec"]["template"]["spec"]["volumes"]], [["image", "name"]])
runtime, pool, adapter = load("serving-runtime.yaml"), load("inference-pool.yaml"), load("prometheus-adapter.yaml")
expect("the kinds of other groups", [(each["apiVersion"], each["kind"]) for each in (runtime, pool)],
       [("serving.kserve.io/v1alpha1", "ServingRuntime"), ("inference.networking.k8s.io/v1", "InferencePool")])
if full():
    validate_by_module("github.com/kserve/kserve@v0.16.0", "config/crd/full/serving.kserve.io_servingruntimes.yaml", runtime)
    validate_by_module("sigs.k8s.io/gateway-api-inference-extension@v1.2.0", "config/crd/bases/inference.networking.k8s.io_inferencepools.yaml", pool)
# The members of a runtime's container are Kubernetes's.
container_of_runtime = dict(runtime["spec"]["containers"][0])
validate("the container of the runtime", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": [container_of_runtime]}})

# Labels and names.
pod = deployment["spec"]["template"]
labels = pod["metadata"]["labels"]
for what, selector in (("the deployment", deployment["spec"]["selector"]["matchLabels"]), ("the service", service["spec"]["selector"]),
                       ("the disruption budget", disruption["spec"]["selector"]["matchLabels"]),
                       ("the network policy", network["spec"]["podSelector"]["matchLabels"]), ("the pool", pool["spec"]["selector"]["matchLabels"])):
    expect(f"the selector of {what}", selector, labels)
expect("what is scaled", autoscaler["spec"]["scaleTargetRef"], {key: deployment.get(key, deployment["metadata"].get(key)) for key in ("apiVersion", "kind", "name")})
checks.check(disruption["spec"]["minAvailable"] < autoscaler["spec"]["minReplicas"], "no server may be disrupted")

# Rights.
container = pod["spec"]["containers"][0]
for of, rights, user in (("the deployment", container["securityContext"], pod["spec"]["securityContext"]),
                         ("the runtime", container_of_runtime["securityContext"], container_of_runtime["securityContext"])):
    expect(f"the rights of {of}", (rights["readOnlyRootFilesystem"], rights["allowPrivilegeEscalation"], rights["capabilities"], user["runAsNonRoot"]),
           (True, False, {"drop": ["ALL"]}, True))
checks.check(all(mount["readOnly"] for mount in container["volumeMounts"]), "a volume is not read-only")

# Ports.
image_file = (SOURCE / "deploy/Containerfile").read_text()
port = int(re.search(r"^EXPOSE (\d+)$", image_file, re.M)[1])
checks.check(f"QWEN_RUN_LISTEN=0.0.0.0:{port}" in image_file, "the image does not listen on its port")
expect("the ports", [[each["containerPort"] for each in container["ports"]], [each["containerPort"] for each in container_of_runtime["ports"]],
                     [each["number"] for each in pool["spec"]["targetPorts"]], [int(pod["metadata"]["annotations"]["prometheus.io/port"])],
                     [int(runtime["spec"]["annotations"]["prometheus.kserve.io/port"])]], 5 * [[port]])
named = container["ports"][0]["name"]
expect("the names of ports", [service["spec"]["ports"][0]["targetPort"], network["spec"]["ingress"][0]["ports"][0]["port"]], 2 * [named])

# The server, with the arguments and the variables of the container.
command = [str(MODEL)] + container["args"][1:]
expect("the variables", [each["name"] for each in container["env"]], ["QWEN_RUN_API_KEY"])
server = Server(MODEL, *command[1:], env={**os.environ, "QWEN_RUN_API_KEY": "secret"})
key = {"Authorization": "Bearer secret"}
probes = [each[kind] for each in (container, container_of_runtime) for kind in ("startupProbe", "readinessProbe", "livenessProbe")]
for probe in probes:
    checks.check(probe["httpGet"]["port"] in (port, named), f"a probe asks port {probe['httpGet']['port']}")
    expect(f"the status of {probe['httpGet']['path']}", server.send("GET", probe["httpGet"]["path"])[0], 200)
status, _, text = server.send("GET", pod["metadata"]["annotations"]["prometheus.io/path"], headers=key)
metrics = {line.split("{")[0] for line in text.splitlines() if not line.startswith("#")}
rule, = adapter["rules"]["custom"]
series = re.search(r'__name__="([^"]+)"', rule["seriesQuery"])[1]
checks.check(series in metrics, f"the server has no metric {series}")
expect("the metric of the autoscaler", [each["pods"]["metric"]["name"] for each in autoscaler["spec"]["metrics"]],
       [re.sub(rule["name"]["matches"], rule["name"]["as"].replace("$", "\\"), series)])
for name in re.findall(r"vllm:\w+", (FOLDER / "inference-pool.yaml").read_text()):
    checks.check(name in metrics, f"the server has no metric {name}")

# The end: requests that run may end, and no others come.
drain = int(re.search(r"`--drain` .*`SECONDS` \| `(\d+)`", (SOURCE / "docs/server-options.md").read_text())[1])
pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
checks.check(pod["spec"]["terminationGracePeriodSeconds"] > drain + pause, f"the server is killed before {pause} and {drain} seconds are over")
stream = server.connect()
stream.request("POST", "/v1/completions", json.dumps({"prompt": "Once", "seed": 1, "max_tokens": 400, "ignore_eos": True, "stream": True, "n": 128}),
               {"Content-Type": "application/json", **key})
# Nobody reads on until others have been refused, so that it runs as long.
response = stream.getresponse()
response.readline()
server.process.terminate()
refused, end = False, time.time() + 20
while not refused and time.time() < end:
    try:
        refused = server.send("GET", container["readinessProbe"]["httpGet"]["path"])[0] == 503
    except OSError:
        refused = True
checks.check(refused, "a server that ends takes requests")
checks.check(response.read().rstrip().endswith(b"data: [DONE]"), "the request that ran has no end")
expect("the status of the server", server.process.wait(timeout=60), 0)
checks.finish()
