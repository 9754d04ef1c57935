"""Validates examples/kubernetes by Kubernetes' own schema, without a network: check.py URL KEY. Flags in it must be flags of $MKGEN."""

import os
import re
import subprocess
from pathlib import Path

import kubernetes_validate
import yaml

folder = Path(__file__).resolve().parents[3] / "examples" / "kubernetes"
flags = set(re.findall(r"--[a-z-]+", subprocess.run([os.environ["MKGEN"], "serve", "--help"], capture_output=True, text=True, check=True).stdout))
kinds = []
for path in sorted(folder.glob("*.yaml")):
    for document in yaml.safe_load_all(path.read_text()):
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
        kinds.append(document["kind"])
        if document["kind"] == "Deployment":
            pod = document["spec"]["template"]["spec"]
            for container in pod["containers"]:
                missing = [word for word in container["args"] if word.startswith("--") and word not in flags]
                assert not missing, missing
                drain = int(container["args"][container["args"].index("--drain") + 1].removesuffix("s"))
                assert drain < pod["terminationGracePeriodSeconds"], "it would be killed while it drains"
for broken in ({"replicas": "two"}, {"replica": 2}):
    document = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": broken}
    try:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError:
        continue
    raise AssertionError(f"{broken} is taken")
assert {"Deployment", "Service", "PodDisruptionBudget"} <= set(kinds)
print("ok", *kinds)
