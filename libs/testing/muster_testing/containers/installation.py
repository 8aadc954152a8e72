"""The kustomizations of ``deploy/kubernetes``, applied to a control plane and a real node of this machine, with the built images.

The objects are those of the overlay ``production``: two instances of each service, a broker of three servers, Jaeger. What differs:

- One node takes the three servers of the broker, whose anti-affinity asks for three, and everything together has the CPUs of this machine,
  so requests of CPU are smaller. Limits, probes, security contexts and settings are those of the overlay.
- There is no storage provisioner. The claims are bound to local volumes that are created before.
- There is no kube-proxy. The DNS server of the node (``cluster/dns_server.py``) resolves a service to the addresses of its pods, as every
  DNS server does for headless services. pod-launcher gets the name of the API server in place of its virtual address.
- The pod network does not enforce network policies.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from muster_testing.cluster.control_plane import ControlPlane
from muster_testing.cluster.kustomize import Manifests, overlay_of, render
from muster_testing.cluster.node import API_SERVER_NAME, API_SERVER_PORT, RealNode
from muster_testing.cluster.tools import require
from muster_testing.containers.images import TAG

NAMESPACE = "muster"
SERVICES = ("gateway", "spec-validator", "scheduler", "scaler", "status-tracker", "pod-launcher")

_TIMEOUT_S = 240
_KUBECTL_TIMEOUT_S = _TIMEOUT_S + 30
_SMALL_CPU = "10m"
_METRICS_PORT = 7001
_POLL_S = 0.25


class KubectlError(Exception):
    """kubectl failed; the message has its output."""


class InstalledSystem:
    """The applied overlay.

    Args:
        cluster: The control plane, with service accounts and a scheduler.
        node: Its only node, with the images, which offers the API server to pods.
        folder: An empty folder for the overlay and for volumes.
    """

    def __init__(self, cluster: ControlPlane, node: RealNode, *, folder: Path) -> None:
        self.cluster = cluster
        self.node = node
        self._folder = folder
        self._overlay = folder / "overlay"

    def apply(self) -> Manifests:
        """Create the volumes, apply the overlay, and return its objects."""
        self._overlay.mkdir()
        overlay_of(self._overlay, "overlays/production", namespace=NAMESPACE, changes=_changes())
        manifests = render(self._overlay)
        volumes = [
            *(self._volume(f"events-{n}", ["ReadWriteOnce"], "20Gi") for n in range(3)),
            self._volume("logs", ["ReadWriteMany"], "100Gi"),
        ]
        self.create(*volumes)
        self.kubectl("apply", "-k", str(self._overlay))
        return manifests

    def wait_until_available(self) -> None:
        """Wait for the provisioning step, the broker, and every deployment. Raises ``KubectlError`` with what is not available."""
        deadline = time.monotonic() + _TIMEOUT_S

        def remaining() -> str:
            return f"--timeout={max(1, int(deadline - time.monotonic()))}s"

        try:
            self.kubectl("wait", "--for=condition=complete", "job/provision", remaining())
            self.kubectl("rollout", "status", "statefulset/nats", remaining())
            self.kubectl("wait", "--for=condition=available", "deployment", "--all", remaining())
        except KubectlError as error:
            raise KubectlError(f"{error}\n{self.description()}") from error

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as an administrator in the namespace of Muster, and return what it prints. Raises ``KubectlError``."""
        command = [
            str(require("kubectl")),
            f"--kubeconfig={self.cluster.kubeconfig}",
            f"--cache-dir={self._folder / 'cache'}",
            f"--namespace={NAMESPACE}",
        ]
        done = subprocess.run(
            [*command, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_KUBECTL_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def create(self, *objects: Mapping[str, object]) -> None:
        """Create or replace objects."""
        self.kubectl(
            "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        )

    def get(self, *what: str) -> dict[str, Any]:
        """Return an object, or a list of objects."""
        return json.loads(self.kubectl("get", *what, "-o", "json"))

    def provision(self) -> None:
        """Run the provisioning step again, and wait for its end."""
        job = render(self._overlay).of_kind("Job")["provision"]
        self.kubectl("delete", "job/provision", "--ignore-not-found", "--wait")
        self.create(job)
        self.kubectl("wait", "--for=condition=complete", "job/provision", f"--timeout={_TIMEOUT_S}s")

    def ready_pods(self, name: str) -> list[dict[str, Any]]:
        """Return the ready pods of a workload, by name."""
        found = self.get("pods", "--selector", f"app.kubernetes.io/name={name}")["items"]
        return [each for each in found if _is_ready(each)]

    def address(self, name: str) -> str:
        """Return the address of the first ready pod of a workload."""
        return str(self.ready_pods(name)[0]["status"]["podIP"])

    @property
    def gateway(self) -> str:
        """The address of a gateway."""
        return f"{self.address('gateway')}:7000"

    @property
    def bus_url(self) -> str:
        """The URL of the first server of the broker."""
        return f"nats://{self.address('nats')}:4222"

    def run_beside(
        self,
        service: str,
        name: str,
        *,
        image: str | None = None,
        variables: Mapping[str, str] | None = None,
        mounted: tuple[str, str] | None = None,
    ) -> None:
        """Start one more pod of a service, which no deployment owns, and wait until it is ready.

        Args:
            service: The service.
            name: The name of the pod.
            image: Its image, if it is not the service's.
            variables: Variables besides those of the service, or in their place.
            mounted: The name of a config map, and where it is mounted.
        """
        template = self.get(f"deployment/{service}")["spec"]["template"]
        container = template["spec"]["containers"][0]
        own = variables or {}
        container["env"] = [each for each in container["env"] if each["name"] not in own]
        container["env"] += [{"name": key, "value": value} for key, value in own.items()]
        container["image"] = image or container["image"]
        if mounted is not None:
            config_map, path = mounted
            volume = {"name": config_map, "configMap": {"name": config_map}}
            template["spec"]["volumes"] = [*template["spec"].get("volumes", ()), volume]
            mount = {"name": config_map, "mountPath": path}
            container["volumeMounts"] = [*container.get("volumeMounts", ()), mount]
        metadata = {"name": name, "labels": template["metadata"]["labels"]}
        self.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
        self.kubectl("wait", "--for=condition=ready", f"pod/{name}", f"--timeout={_TIMEOUT_S}s")

    def scale(self, workload: str, replicas: int) -> None:
        """Scale a workload, and wait until it has exactly these ready pods."""
        self.kubectl("scale", workload, f"--replicas={replicas}")
        name = workload.partition("/")[2]
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            pods = self.get("pods", "--selector", f"app.kubernetes.io/name={name}")["items"]
            if len(pods) == replicas and all(map(_is_ready, pods)):
                return
            if time.monotonic() > deadline:
                raise KubectlError(f"{workload} has not {replicas} ready pods\n{self.description()}")
            time.sleep(_POLL_S)

    def description(self) -> str:
        """Return the pods, the newest events, and readiness and logs of pods that are not ready, for the message of a failure."""
        texts = [self.kubectl("get", "pods", "-o", "wide"), self.kubectl("get", "events")[-6_000:]]
        for pod in self.get("pods")["items"]:
            if not _is_ready(pod) and pod["status"]["phase"] != "Succeeded":
                name = pod["metadata"]["name"]
                texts.append(f"--- {name}: {_readiness(pod)}")
                try:
                    texts.append(f"--- {name}\n{self.kubectl('logs', name, '--tail=20')}")
                except KubectlError as error:
                    texts.append(str(error))
        return "\n".join(texts)

    def _volume(self, name: str, modes: Sequence[str], size: str) -> dict[str, object]:
        """Return a local volume; its size is what it claims, not what it takes."""
        path = self._folder / "volumes" / name
        path.mkdir(parents=True)
        node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [self.node.name]}
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "accessModes": modes,
                "capacity": {"storage": size},
                "local": {"path": str(path)},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [node]}]}},
            },
        }


def _readiness(pod: Mapping[str, Any]) -> str:
    """Return the conditions of a service's readiness."""
    url = f"http://{pod['status'].get('podIP')}:{_METRICS_PORT}/readyz"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()
    except OSError as error:
        return str(error)


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return "deletionTimestamp" not in pod["metadata"] and any(
        (each["type"], each["status"]) == ("Ready", "True") for each in conditions
    )


def _changes() -> Mapping[str, object]:
    """Return what the overlay changes of ``production``."""
    requests = {
        "op": "replace",
        "path": "/spec/template/spec/containers/0/resources/requests/cpu",
        "value": _SMALL_CPU,
    }
    variables = [
        {"name": "KUBERNETES_SERVICE_HOST", "value": API_SERVER_NAME},
        {"name": "KUBERNETES_SERVICE_PORT", "value": str(API_SERVER_PORT)},
    ]
    environment = [
        {"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": each} for each in variables
    ]
    anti_affinity = {"op": "remove", "path": "/spec/template/spec/affinity"}
    return {
        "images": [{"name": f"muster/{name}", "newTag": TAG} for name in (*SERVICES, "provision")],
        "patches": [
            _patch({"kind": "Deployment"}, requests),
            _patch({"kind": "StatefulSet", "name": "nats"}, requests, anti_affinity),
            _patch({"kind": "Deployment", "name": "pod-launcher"}, *environment),
        ],
    }


def _patch(target: Mapping[str, str], *operations: Mapping[str, object]) -> Mapping[str, object]:
    return {"target": target, "patch": yaml.safe_dump(list(operations))}
