"""Fields of operations and components in Polyaxon 1.x, around their run, and their types."""

from __future__ import annotations

import enum

from muster_core.quantities import MAX_SECONDS
from muster_formats.field_types import AnyValue, Boolean, Choice, Integer, ListOf, LooseString, MapOf, String
from muster_formats.polyaxon_v1.run_fields import RUN, OneOrMany, V1Param
from muster_formats.schema import Field, Nested, Table, ignored, rejected

VERSION = "1.1"
NAME = "polyaxon-1"

_MANAGER = "it belongs to an experiment manager, not to a scheduler"
_HUB = "it needs Polyaxon's hub or file system"
_HERE = "write the component here, under component"
_FETCHED = "Polyaxon's own containers fetch it"
_FETCH = "fetch it in a container under init"
_SINGLY = "submit an operation for each of its runs, with its values under params"
_POLYAXON = "it is a helper of Polyaxon, which does not run here"


class OperationKind(enum.StrEnum):
    """The kind of an operation."""

    OPERATION = "operation"


class ComponentKind(enum.StrEnum):
    """The kind of a component."""

    COMPONENT = "component"


class PatchStrategy(enum.StrEnum):
    """How an operation overrides its component: replace it, or merge with either first."""

    REPLACE = "replace"
    IS_NULL = "isnull"
    POST_MERGE = "post_merge"
    PRE_MERGE = "pre_merge"


class V1TerminationFields(Table):
    """``termination``."""

    max_retries = Field("maxRetries", Integer(0, 2**31 - 1), "Tolerated failures (backoffLimit); default 0.")
    ttl = Field("ttl", Integer(0, MAX_SECONDS), "Seconds from the end until everything is removed.")
    timeout = Field("timeout", Integer(1, MAX_SECONDS), "Seconds from the first start (activeDeadline).")
    culling = ignored("culling", "Stops an idle service.", "timeout stops a service")
    probe = ignored("probe", "How idleness is detected.", "idle services are not stopped")
    pod_failure_policy = ignored(
        "podFailurePolicy",
        "Which failures count.",
        "environment.restartPolicy decides; evictions and lost nodes never count",
    )


class V1PluginFields(Table):
    """``plugins``: helpers of Polyaxon beside the program."""

    auth = ignored("auth", "A token for Polyaxon's API.", _POLYAXON)
    docker = ignored("docker", "The host's Docker socket.", "mount it as a volume of the run")
    shm = ignored("shm", "A larger /dev/shm.", "mount it as a volume of the run")
    mount_artifacts_store = ignored("mountArtifactsStore", "The store.", "Muster has no artifact store")
    collect_artifacts = ignored("collectArtifacts", "Collects artifacts.", "Muster has no artifact store")
    collect_logs = ignored("collectLogs", "Collects logs.", "logs are always stored")
    collect_resources = ignored("collectResources", "Collects usage.", _POLYAXON)
    sync_statuses = ignored("syncStatuses", "Reports states.", "states are always stored")
    auto_resume = ignored("autoResume", "Continues tracking.", _POLYAXON)
    log_level = ignored("logLevel", "The helpers' log level.", _POLYAXON)
    external_host = ignored("externalHost", "How helpers reach the API.", _POLYAXON)
    sidecar = ignored("sidecar", "The helpers' container.", _POLYAXON)
    notifications = ignored(
        "notifications", "Recipients of notifications.", "configure webhooks, or watch it"
    )


class V1TemplateFields(Table):
    """``template``: marks a document that must be completed before it runs."""

    enabled = Field("enabled", Boolean(), "Whether the document is such a template, which is rejected.")
    description = Field("description", String(), "Shown when the template is rejected.")
    fields_ = Field("fields", ListOf(String()), "The fields to complete; shown on rejection.")


class V1ValidationFields(Table):
    """Constraints of a value."""

    delay = ignored("delay", "Checks later.", "a value is checked where it is given")
    gt = Field("gt", AnyValue(), "Greater than this.")
    ge = Field("ge", AnyValue(), "At least this.")
    lt = Field("lt", AnyValue(), "Less than this.")
    le = Field("le", AnyValue(), "At most this.")
    options = Field("options", AnyValue(), "One of these.")
    min_length = Field("minLength", Integer(), "Least number of characters.")
    max_length = Field("maxLength", Integer(), "Greatest number of characters.")
    min_items = Field("minItems", Integer(), "Least number of elements.")
    max_items = Field("maxItems", Integer(), "Greatest number of elements.")
    multiple_of = ignored("multipleOf", "A multiple of this.", "only Polyaxon's client checks it")
    min_digits = ignored("minDigits", "Least number of digits.", "only Polyaxon's client checks it")
    max_digits = ignored("maxDigits", "Greatest number of digits.", "only Polyaxon's client checks it")
    decimal_places = ignored("decimalPlaces", "Number of decimals.", "only Polyaxon's client checks it")
    regex = ignored("regex", "A pattern.", "only Polyaxon's client checks it")
    contains = ignored("contains", "Values it must contain.", "only Polyaxon's client checks it")
    excludes = ignored("excludes", "Values it must not contain.", "only Polyaxon's client checks it")
    keys = ignored("keys", "Its keys.", "only Polyaxon's client checks it")
    contains_keys = ignored("containsKeys", "Keys it must contain.", "only Polyaxon's client checks it")
    excludes_keys = ignored("excludesKeys", "Keys it must not contain.", "only Polyaxon's client checks it")


class V1InputFields(Table):
    """An input or an output of a component."""

    required = ("name",)
    name = Field("name", String(), "The name in {{ name }} expressions.")
    description = Field("description", LooseString(), "A description, not stored.")
    type = Field("type", String(), "int, float, bool, str, dict, or a list of these, are checked.")
    value = Field("value", AnyValue(), "The default value.")
    is_optional = Field("isOptional", Boolean(), "Whether it may have no value; a default implies it.")
    is_list = Field("isList", Boolean(), "Whether it is a list of its type.")
    is_flag = Field("isFlag", Boolean(), "Whether it is written as --name alone.")
    arg_format = Field("argFormat", String(), "The format of {{ params.name.as_arg }}; default --name=value.")
    to_env = Field("toEnv", String(), "An environment variable that carries it too.")
    validation = Field("validation", Nested(V1ValidationFields), "Constraints of the value.")
    options = Field("options", AnyValue(), "The allowed values; the older form of validation.options.")
    delay_validation = ignored("delayValidation", "Checks later.", "a value is checked where it is given")
    connection = ignored("connection", "A store.", "connections belong to Polyaxon's configuration")
    to_init = Field("toInit", Boolean(), "Fetches it before the start.", rejected=_FETCHED, fix=_FETCH)


class V1ParamFields(Table):
    """A parameter in its full form."""

    value = Field("value", AnyValue(), "The value.")
    context_only = Field("contextOnly", Boolean(), "Whether it needs no input of its name.")
    to_env = Field("toEnv", String(), "An environment variable that carries it too.")
    connection = ignored("connection", "A store.", "connections belong to Polyaxon's configuration")
    ref = rejected(
        "ref",
        "A value of another run.",
        f"it refers to a value of another run; {_MANAGER}",
        fix="write the value itself",
    )
    to_init = rejected("toInit", "Fetches it before the start.", _FETCHED, fix=_FETCH)


class V1CommonFields(Table):
    """Fields of both operations and components; merged by patchStrategy."""

    version = Field("version", LooseString(), "1.1.")
    name = Field("name", String(), "The job's name, without owner/ before and :tag after it.")
    description = Field("description", String(), "Stored as the annotation polyaxon.com/description.")
    tags = Field("tags", OneOrMany(String()), "Stored as the annotation polyaxon.com/tags.")
    queue = Field("queue", String(), "The queue; an agent before a slash is dropped.")
    namespace = Field("namespace", String(), "The namespace.")
    termination = Field("termination", Nested(V1TerminationFields), "When it stops, restarts, is removed.")
    plugins = Field("plugins", Nested(V1PluginFields), "Helpers of Polyaxon; none of them runs.")
    strict_params = Field("strictParams", Boolean(), "Whether every parameter needs an input of its name.")
    is_approved = Field("isApproved", Boolean(), "false suspends the job until it is resumed.")
    template = Field(
        "template", Nested(V1TemplateFields), "Marks a document that must be completed before it runs."
    )
    cost = ignored("cost", "A cost.", "the replicas' requests count")
    presets = rejected("presets", "Further files.", _MANAGER, fix="write its settings here")
    cache = rejected("cache", "Reuses an earlier run.", _MANAGER)
    hooks = rejected("hooks", "Actions after the run.", _MANAGER)
    actions = rejected("actions", "Actions on the run.", _MANAGER)
    build = rejected("build", "Builds the image first.", _HUB, fix="name an existing image")
    mount = rejected("mount", "Submitted files.", "files are not uploaded", fix="use the run's volumes")


class V1ComponentFields(V1CommonFields):
    """A component."""

    required = ("run",)
    kind = Field("kind", Choice(ComponentKind), "component.")
    inputs = Field("inputs", ListOf(Nested(V1InputFields)), "Its declared parameters.")
    outputs = Field(
        "outputs",
        ListOf(Nested(V1InputFields)),
        "Its results; a value or a parameter can be used, results are not stored.",
    )
    run = Field("run", RUN, "What runs.")


class V1OperationFields(V1CommonFields):
    """An operation: a component with parameters."""

    required = ("component",)
    kind = Field("kind", Choice(OperationKind), "operation.")
    component = Field("component", Nested(V1ComponentFields), "The inline component.")
    params = Field("params", MapOf(None, V1Param(Nested(V1ParamFields))), "Values of inputs and more.")
    run_patch = Field("runPatch", AnyValue(), "Fields of the component's run, merged by patchStrategy.")
    patch_strategy = Field("patchStrategy", Choice(PatchStrategy), "The merge strategy; default post_merge.")
    is_preset = Field("isPreset", Boolean(), "Whether it is a preset, which is rejected.")
    hub_ref = rejected("hubRef", "A component of the hub.", _HUB, fix=_HERE)
    path_ref = rejected("pathRef", "A component in a file.", _HUB, fix=_HERE)
    url_ref = rejected("urlRef", "A component at a URL.", _HUB, fix=_HERE)
    dag_ref = rejected("dagRef", "A component of a graph.", _MANAGER)
    matrix = rejected("matrix", "Many runs.", _MANAGER, fix=_SINGLY)
    parallel = rejected("parallel", "Many runs, the older name.", _MANAGER, fix=_SINGLY)
    joins = rejected("joins", "Results of other runs.", _MANAGER, fix="write the values under params")
    schedule = rejected("schedule", "Repeated runs.", _MANAGER, fix="submit it from a timer of your own")
    events = rejected("events", "A trigger.", _MANAGER)
    dependencies = rejected("dependencies", "Runs that come first.", _MANAGER, fix="submit it after them")
    trigger = rejected("trigger", "When dependencies are met.", _MANAGER)
    conditions = rejected("conditions", "Whether it runs.", _MANAGER)
    skip_on_upstream_skip = rejected("skipOnUpstreamSkip", "Whether it runs.", _MANAGER)
