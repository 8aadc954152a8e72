"""What may stand in the platform's defaults: in Polyaxon's ``polyaxon_config.yml``, and in the native form.

Source for the former: the reference of Polyaxon's chart, versions 0.1 to 0.6.
"""

from __future__ import annotations

import enum

from muster_formats.kinds import Choice, Ignored
from muster_formats.names import Rule
from muster_formats.native.keys import ApiVersion
from muster_formats.pods.keys import LABELS, AffinityKeys
from muster_formats.pods.scheduling_keys import NODE_AFFINITY, TOLERATIONS
from muster_formats.table import Field, Nested, Table

KIND = "Defaults"

DEPLOYED = "it concerns the deployment itself, whose values are in the deploy tree"
"""Why a key has no effect."""

_AS_JOBS = "tensorboards have the defaults of jobs"

_ANY = Rule("a key", r"[\s\S]*", 1024, "any characters")


class DefaultsWord(enum.StrEnum):
    """The one kind."""

    DEFAULTS = KIND


class _OtherCategoryKeys(Table):
    """Categories that are not of jobs."""

    core = Field("core", Ignored(), "The platform.", idle=DEPLOYED)
    dependencies = Field("dependencies", Ignored(), "What the platform stands on.", idle=DEPLOYED)
    daemon = Field("resourcesDaemon", Ignored(), "The platform's daemon.", idle=DEPLOYED)
    tensorboards = Field("tensorboards", Ignored(), "Tensorboards.", idle=_AS_JOBS)


class NodeSelectorsKeys(_OtherCategoryKeys):
    """``nodeSelectors``."""

    experiments = Field("experiments", LABELS, "Labels of the nodes for experiments.")
    jobs = Field("jobs", LABELS, "Labels of the nodes for jobs, notebooks and tensorboards.")
    builds = Field("builds", LABELS, "Labels of the nodes for builds.")


class TolerationsKeys(_OtherCategoryKeys):
    """``tolerations``."""

    experiments = Field("experiments", TOLERATIONS, "Taints that experiments stand.")
    jobs = Field("jobs", TOLERATIONS, "Taints that jobs, notebooks and tensorboards stand.")
    builds = Field("builds", TOLERATIONS, "Taints that builds stand.")


class AffinitiesKeys(_OtherCategoryKeys):
    """``affinity``."""

    experiments = Field("experiments", Nested(AffinityKeys), "The affinity of experiments.")
    jobs = Field("jobs", Nested(AffinityKeys), "The affinity of jobs, notebooks and tensorboards.")
    builds = Field("builds", Nested(AffinityKeys), "The affinity of builds.")


class ConfigKeys(Table):
    """``polyaxon_config.yml``, of which the rest concerns the deployment."""

    others = (_ANY, Ignored())
    node_selectors = Field("nodeSelectors", Nested(NodeSelectorsKeys), "Labels of nodes, by category.")
    node_selector = Field(
        "nodeSelector", Nested(NodeSelectorsKeys), "The older reference's word for nodeSelectors."
    )
    tolerations = Field("tolerations", Nested(TolerationsKeys), "Tolerations, by category.")
    affinity = Field("affinity", Nested(AffinitiesKeys), "Affinities, by category.")
    postgresql = Field("postgresql", Ignored(), "The platform's database.", idle=DEPLOYED)
    rabbitmq = Field("rabbitmq", Ignored(), "The platform's queue.", idle=DEPLOYED)
    redis = Field("redis", Ignored(), "The platform's cache.", idle=DEPLOYED)


class CategoryKeys(Table):
    """One category, natively."""

    node_selector = Field("nodeSelector", LABELS, "Labels that the node must have.")
    tolerations = Field("tolerations", TOLERATIONS, "Taints that its replicas stand.")
    node_affinity = Field("nodeAffinity", NODE_AFFINITY, "A Kubernetes NodeAffinity.")


class SpecKeys(Table):
    """``spec``."""

    experiments = Field("experiments", Nested(CategoryKeys), "Batch jobs, unless they say another category.")
    jobs = Field("jobs", Nested(CategoryKeys), "Services, unless they say another category.")
    builds = Field("builds", Nested(CategoryKeys), "Builds.")


class DefaultsKeys(Table):
    """The native form."""

    required = ("apiVersion", "kind", "spec")
    api_version = Field("apiVersion", Choice(ApiVersion), "The version of this form.")
    kind = Field("kind", Choice(DefaultsWord), "Defaults.")
    metadata = Field(
        "metadata", Ignored(), "A name.", idle="there is one set of defaults, which needs no name"
    )
    spec = Field("spec", Nested(SpecKeys), "What jobs have that say nothing, by category.")
