"""Fields of operations and components in Polyaxon 1.x, around their run.

Source: the published schema of ``V1Operation`` and ``V1Component``. Fields that decide when, how often or after what to
run are rejected: they belong to an experiment manager, and ignoring them would run something else.
"""

from __future__ import annotations

import enum

from muster_core.quantities import MAX_SECONDS
from muster_formats.kinds import Choice, Ignored, ListOf, Loose, MapOf, Text, Truth, Whole
from muster_formats.polyaxon_v1.kinds import OneOrMany, Param
from muster_formats.polyaxon_v1.run_keys import RUN
from muster_formats.table import Field, Nested, Table

VERSION = "1.1"
NAME = "polyaxon-1"

_MANAGER = "it belongs to an experiment manager, not to a scheduler"
_HUB = "it needs Polyaxon's hub or file system"
_HERE = "write the component here, under component"
_FETCHED = "Polyaxon's own containers fetch it"
_FETCH = "fetch it in a container under init"
_SINGLY = "submit an operation for each of its runs, with its values under params"
_POLYAXON = "it is a helper of Polyaxon, which does not run here"


class OperationWord(enum.StrEnum):
    """The kind of an operation."""

    OPERATION = "operation"


class ComponentWord(enum.StrEnum):
    """The kind of a component."""

    COMPONENT = "component"


class PatchStrategy(enum.StrEnum):
    """How an operation overrides its component: replace it, or merge with either first."""

    REPLACE = "replace"
    IS_NULL = "isnull"
    POST_MERGE = "post_merge"
    PRE_MERGE = "pre_merge"


class TerminationKeys(Table):
    """``termination``."""

    max_retries = Field(
        "maxRetries", Whole(0, 2**31 - 1), "Failures that are tolerated (backoffLimit); default 0."
    )
    ttl = Field("ttl", Whole(0, MAX_SECONDS), "Seconds from the end until everything is removed.")
    timeout = Field("timeout", Whole(1, MAX_SECONDS), "Seconds from the first start (activeDeadline).")
    culling = Field(
        "culling",
        Ignored(),
        "Stops an idle service.",
        idle="idle services are not stopped; timeout stops them",
    )
    probe = Field("probe", Ignored(), "How idleness is detected.", idle="idle services are not stopped")
    pod_failure_policy = Field(
        "podFailurePolicy",
        Ignored(),
        "Which failures count.",
        idle="environment.restartPolicy decides; evictions and lost nodes never count",
    )


class PluginKeys(Table):
    """``plugins``: helpers of Polyaxon beside the program."""

    auth = Field("auth", Ignored(), "A token for Polyaxon's API.", idle=_POLYAXON)
    docker = Field("docker", Ignored(), "The host's Docker socket.", idle="mount it as a volume of the run")
    shm = Field("shm", Ignored(), "A larger /dev/shm.", idle="mount it as a volume of the run")
    mount_artifacts_store = Field(
        "mountArtifactsStore", Ignored(), "The artifact store.", idle="Muster has no artifact store"
    )
    collect_artifacts = Field(
        "collectArtifacts", Ignored(), "Collects artifacts.", idle="Muster has no artifact store"
    )
    collect_logs = Field("collectLogs", Ignored(), "Collects logs.", idle="logs are always stored")
    collect_resources = Field("collectResources", Ignored(), "Collects usage.", idle=_POLYAXON)
    sync_statuses = Field("syncStatuses", Ignored(), "Reports states.", idle="states are always stored")
    auto_resume = Field("autoResume", Ignored(), "Continues tracking.", idle=_POLYAXON)
    log_level = Field("logLevel", Ignored(), "The helpers' log level.", idle=_POLYAXON)
    external_host = Field("externalHost", Ignored(), "How helpers reach the API.", idle=_POLYAXON)
    sidecar = Field("sidecar", Ignored(), "The helpers' container.", idle=_POLYAXON)
    notifications = Field(
        "notifications",
        Ignored(),
        "Recipients of notifications.",
        idle="watch the job, or configure webhooks",
    )


class TemplateKeys(Table):
    """``template``: marks a document that must be completed before it runs."""

    enabled = Field("enabled", Truth(), "Whether the document is such a template, which is rejected.")
    description = Field("description", Text(), "Shown when the template is rejected.")
    fields_ = Field("fields", ListOf(Text()), "The fields to complete; shown when the template is rejected.")


class ValidationKeys(Table):
    """Constraints of a value."""

    delay = Field("delay", Ignored(), "Checks later.", idle="a value is checked where it is given")
    gt = Field("gt", Ignored(), "Greater than this.")
    ge = Field("ge", Ignored(), "At least this.")
    lt = Field("lt", Ignored(), "Less than this.")
    le = Field("le", Ignored(), "At most this.")
    options = Field("options", Ignored(), "One of these.")
    min_length = Field("minLength", Whole(), "Least number of characters.")
    max_length = Field("maxLength", Whole(), "Greatest number of characters.")
    min_items = Field("minItems", Whole(), "Least number of elements.")
    max_items = Field("maxItems", Whole(), "Greatest number of elements.")
    multiple_of = Field(
        "multipleOf", Ignored(), "A multiple of this.", idle="only Polyaxon's client checks it"
    )
    min_digits = Field(
        "minDigits", Ignored(), "Least number of digits.", idle="only Polyaxon's client checks it"
    )
    max_digits = Field(
        "maxDigits", Ignored(), "Greatest number of digits.", idle="only Polyaxon's client checks it"
    )
    decimal_places = Field(
        "decimalPlaces", Ignored(), "Number of decimals.", idle="only Polyaxon's client checks it"
    )
    regex = Field("regex", Ignored(), "A pattern.", idle="only Polyaxon's client checks it")
    contains = Field(
        "contains", Ignored(), "Values it must contain.", idle="only Polyaxon's client checks it"
    )
    excludes = Field(
        "excludes", Ignored(), "Values it must not contain.", idle="only Polyaxon's client checks it"
    )
    keys = Field("keys", Ignored(), "Its keys.", idle="only Polyaxon's client checks it")
    contains_keys = Field(
        "containsKeys", Ignored(), "Keys it must contain.", idle="only Polyaxon's client checks it"
    )
    excludes_keys = Field(
        "excludesKeys", Ignored(), "Keys it must not contain.", idle="only Polyaxon's client checks it"
    )


class InputKeys(Table):
    """An input or an output of a component."""

    required = ("name",)
    name = Field("name", Text(), "The name in {{ name }} expressions.")
    description = Field("description", Loose(), "A description, not stored.")
    type = Field(
        "type", Text(), "int, float, bool, str, dict, or a list of these; other types are not checked."
    )
    value = Field("value", Ignored(), "The default value.")
    is_optional = Field("isOptional", Truth(), "Whether it may have no value; a default implies it.")
    is_list = Field("isList", Truth(), "Whether it is a list of its type.")
    is_flag = Field("isFlag", Truth(), "Whether it is written as --name alone.")
    arg_format = Field("argFormat", Text(), "The format of {{ params.name.as_arg }}; default --name=value.")
    to_env = Field("toEnv", Text(), "An environment variable that carries it too.")
    validation = Field("validation", Nested(ValidationKeys), "Constraints of the value.")
    options = Field("options", Ignored(), "The allowed values; the older form of validation.options.")
    delay_validation = Field(
        "delayValidation", Ignored(), "Checks later.", idle="a value is checked where it is given"
    )
    connection = Field(
        "connection", Ignored(), "A store.", idle="connections belong to Polyaxon's configuration"
    )
    to_init = Field("toInit", Truth(), "Fetches it before the start.", refused=_FETCHED, fix=_FETCH)


class ParamKeys(Table):
    """A parameter in its full form."""

    value = Field("value", Ignored(), "The value.")
    context_only = Field("contextOnly", Truth(), "Whether it needs no input of its name.")
    to_env = Field("toEnv", Text(), "An environment variable that carries it too.")
    connection = Field(
        "connection", Ignored(), "A store.", idle="connections belong to Polyaxon's configuration"
    )
    ref = Field(
        "ref",
        Ignored(),
        "A value of another run.",
        refused=f"it refers to a value of another run; {_MANAGER}",
        fix="write the value itself",
    )
    to_init = Field("toInit", Ignored(), "Fetches it before the start.", refused=_FETCHED, fix=_FETCH)


class CommonKeys(Table):
    """Fields of both operations and components; merged by patchStrategy."""

    version = Field("version", Loose(), "1.1.")
    name = Field(
        "name", Text(), "The job's name; an owner before a slash and a tag after a colon are dropped."
    )
    description = Field("description", Text(), "Stored as the annotation polyaxon.com/description.")
    tags = Field("tags", OneOrMany(Text()), "Stored as the annotation polyaxon.com/tags.")
    queue = Field("queue", Text(), "The queue; an agent before a slash is dropped.")
    namespace = Field("namespace", Text(), "The namespace.")
    termination = Field(
        "termination", Nested(TerminationKeys), "When the run is stopped, restarted, removed."
    )
    plugins = Field("plugins", Nested(PluginKeys), "Helpers of Polyaxon; none of them runs.")
    strict_params = Field("strictParams", Truth(), "Whether every parameter needs an input of its name.")
    is_approved = Field("isApproved", Truth(), "false suspends the job until it is resumed.")
    template = Field(
        "template", Nested(TemplateKeys), "Marks a document that must be completed before it runs."
    )
    cost = Field("cost", Ignored(), "A cost.", idle="the replicas' requests count")
    presets = Field("presets", Ignored(), "Further files.", refused=_MANAGER, fix="write its settings here")
    cache = Field("cache", Ignored(), "Reuses an earlier run.", refused=_MANAGER)
    hooks = Field("hooks", Ignored(), "Actions after the run.", refused=_MANAGER)
    actions = Field("actions", Ignored(), "Actions on the run.", refused=_MANAGER)
    build = Field("build", Ignored(), "Builds the image first.", refused=_HUB, fix="name an existing image")
    mount = Field(
        "mount",
        Ignored(),
        "Files of the submitter.",
        refused="files are not uploaded",
        fix="use the run's volumes",
    )


class ComponentKeys(CommonKeys):
    """A component."""

    required = ("run",)
    kind = Field("kind", Choice(ComponentWord), "component.")
    inputs = Field("inputs", ListOf(Nested(InputKeys)), "Its declared parameters.")
    outputs = Field(
        "outputs",
        ListOf(Nested(InputKeys)),
        "Its results; a value or a parameter can be used, results are not stored.",
    )
    run = Field("run", RUN, "What runs.")


class OperationKeys(CommonKeys):
    """An operation: a component with parameters."""

    required = ("component",)
    kind = Field("kind", Choice(OperationWord), "operation.")
    component = Field("component", Nested(ComponentKeys), "The inline component.")
    params = Field("params", MapOf(None, Param(Nested(ParamKeys))), "Values of inputs, or of further names.")
    run_patch = Field("runPatch", Ignored(), "Fields of the component's run, merged by patchStrategy.")
    patch_strategy = Field("patchStrategy", Choice(PatchStrategy), "The merge strategy; default post_merge.")
    is_preset = Field("isPreset", Truth(), "Whether it is a preset, which is rejected.")
    hub_ref = Field("hubRef", Ignored(), "A component of the hub.", refused=_HUB, fix=_HERE)
    path_ref = Field("pathRef", Ignored(), "A component in a file.", refused=_HUB, fix=_HERE)
    url_ref = Field("urlRef", Ignored(), "A component at a URL.", refused=_HUB, fix=_HERE)
    dag_ref = Field("dagRef", Ignored(), "A component of a graph.", refused=_MANAGER)
    matrix = Field("matrix", Ignored(), "Many runs.", refused=_MANAGER, fix=_SINGLY)
    parallel = Field("parallel", Ignored(), "Many runs, the older name.", refused=_MANAGER, fix=_SINGLY)
    joins = Field(
        "joins", Ignored(), "Results of other runs.", refused=_MANAGER, fix="write the values under params"
    )
    schedule = Field(
        "schedule", Ignored(), "Repeated runs.", refused=_MANAGER, fix="submit it from a timer of your own"
    )
    events = Field("events", Ignored(), "A trigger.", refused=_MANAGER)
    dependencies = Field(
        "dependencies",
        Ignored(),
        "Runs that come first.",
        refused=_MANAGER,
        fix="submit it when they have succeeded",
    )
    trigger = Field("trigger", Ignored(), "When dependencies are met.", refused=_MANAGER)
    conditions = Field("conditions", Ignored(), "Whether it runs.", refused=_MANAGER)
    skip_on_upstream_skip = Field("skipOnUpstreamSkip", Ignored(), "Whether it runs.", refused=_MANAGER)
