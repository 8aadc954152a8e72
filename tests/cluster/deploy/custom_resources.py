"""The custom resources of the optional components: what the manifests use of them, so that an API server finds misspelt fields."""

from __future__ import annotations

from typing import Any

TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "integer"}
TEXTS: dict[str, Any] = {"type": "object", "additionalProperties": TEXT}


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _definition(plural: str, kind: str, group: str, version: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _object(spec=spec)},
                }
            ],
        },
    }


SCALED_OBJECT = _definition(
    "scaledobjects",
    "ScaledObject",
    "keda.sh",
    "v1alpha1",
    _object(
        scaleTargetRef=_object(apiVersion=TEXT, kind=TEXT, name=TEXT, envSourceContainerName=TEXT),
        minReplicaCount=NUMBER,
        maxReplicaCount=NUMBER,
        pollingInterval=NUMBER,
        cooldownPeriod=NUMBER,
        advanced=_object(
            horizontalPodAutoscalerConfig=_object(
                name=TEXT, behavior=_object(scaleDown=_object(stabilizationWindowSeconds=NUMBER))
            )
        ),
        triggers=_list(_object(type=TEXT, name=TEXT, metadata=TEXTS)),
    ),
)
POD_MONITOR = _definition(
    "podmonitors",
    "PodMonitor",
    "monitoring.coreos.com",
    "v1",
    _object(
        selector=_object(matchLabels=TEXTS),
        podMetricsEndpoints=_list(
            _object(
                port=TEXT,
                path=TEXT,
                interval=TEXT,
                relabelings=_list(
                    _object(
                        sourceLabels=_list(TEXT), targetLabel=TEXT, replacement=TEXT, regex=TEXT, action=TEXT
                    )
                ),
            )
        ),
    ),
)
