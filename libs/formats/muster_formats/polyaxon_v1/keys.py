"""What may stand in an operation and a component of Polyaxon today, around what they run.

Source: the published schema of ``V1Operation`` and ``V1Component``. What decides when to run, how often, or after what is refused: it is
an experiment manager's, and a scheduler that dropped it would run something else.
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
_POLYAXON = "Polyaxon's own helper, which does not run here"


class OperationWord(enum.StrEnum):
    """The kind of an operation."""

    OPERATION = "operation"


class ComponentWord(enum.StrEnum):
    """The kind of a component."""

    COMPONENT = "component"


class PatchStrategy(enum.StrEnum):
    """How an operation's fields meet its component's: the one wins, or they are merged with either last."""

    REPLACE = "replace"
    IS_NULL = "isnull"
    POST_MERGE = "post_merge"
    PRE_MERGE = "pre_merge"


class TerminationKeys(Table):
    """``termination``."""

    max_retries = Field(
        "maxRetries", Whole(0, 2**31 - 1), "Failures that are forgiven (backoffLimit); 0 unless said."
    )
    ttl = Field("ttl", Whole(0, MAX_SECONDS), "Seconds from the end until everything is removed.")
    timeout = Field("timeout", Whole(1, MAX_SECONDS), "Seconds from the first start (activeDeadline).")
    culling = Field(
        "culling", Ignored(), "Stops an idle service.", idle="nobody is stopped for being idle; timeout stops"
    )
    probe = Field("probe", Ignored(), "How idleness is seen.", idle="nobody is stopped for being idle")
    pod_failure_policy = Field(
        "podFailurePolicy",
        Ignored(),
        "Which failures count.",
        idle="environment.restartPolicy decides; evictions and lost nodes are never counted",
    )


class PluginKeys(Table):
    """``plugins``: Polyaxon's helpers beside the program."""

    auth = Field("auth", Ignored(), "A token for Polyaxon's API.", idle=_POLYAXON)
    docker = Field(
        "docker", Ignored(), "The host's Docker socket.", idle="mount it as one of the run's volumes"
    )
    shm = Field("shm", Ignored(), "A larger /dev/shm.", idle="mount it as one of the run's volumes")
    mount_artifacts_store = Field(
        "mountArtifactsStore", Ignored(), "The store of artifacts.", idle="Muster keeps no artifacts"
    )
    collect_artifacts = Field(
        "collectArtifacts", Ignored(), "Collects artifacts.", idle="Muster keeps no artifacts"
    )
    collect_logs = Field("collectLogs", Ignored(), "Collects logs.", idle="logs are always kept")
    collect_resources = Field("collectResources", Ignored(), "Collects usage.", idle=_POLYAXON)
    sync_statuses = Field("syncStatuses", Ignored(), "Reports states.", idle="states are always kept")
    auto_resume = Field("autoResume", Ignored(), "Continues tracking.", idle=_POLYAXON)
    log_level = Field("logLevel", Ignored(), "The helpers' log level.", idle=_POLYAXON)
    external_host = Field("externalHost", Ignored(), "How helpers reach the API.", idle=_POLYAXON)
    sidecar = Field("sidecar", Ignored(), "The helpers' container.", idle=_POLYAXON)
    notifications = Field("notifications", Ignored(), "Who is told.", idle="watch the job instead")


class TemplateKeys(Table):
    """``template``: marks a document that is to be filled in before it runs."""

    enabled = Field("enabled", Truth(), "Whether it is such a template; one is refused.")
    description = Field("description", Text(), "Told when it is refused.")
    fields_ = Field("fields", ListOf(Text()), "What is to be filled in; told when it is refused.")


class ValidationKeys(Table):
    """What a value must satisfy."""

    delay = Field("delay", Ignored(), "Checks later.", idle="a value is checked where it is given")
    gt = Field("gt", Ignored(), "Greater than this.")
    ge = Field("ge", Ignored(), "At least this.")
    lt = Field("lt", Ignored(), "Less than this.")
    le = Field("le", Ignored(), "At most this.")
    options = Field("options", Ignored(), "One of these.")
    min_length = Field("minLength", Whole(), "At least so many characters.")
    max_length = Field("maxLength", Whole(), "At most so many characters.")
    min_items = Field("minItems", Whole(), "At least so many elements.")
    max_items = Field("maxItems", Whole(), "At most so many elements.")
    multiple_of = Field(
        "multipleOf", Ignored(), "A multiple of this.", idle="only Polyaxon's client checks it"
    )
    min_digits = Field(
        "minDigits", Ignored(), "At least so many digits.", idle="only Polyaxon's client checks it"
    )
    max_digits = Field(
        "maxDigits", Ignored(), "At most so many digits.", idle="only Polyaxon's client checks it"
    )
    decimal_places = Field(
        "decimalPlaces", Ignored(), "So many decimals.", idle="only Polyaxon's client checks it"
    )
    regex = Field("regex", Ignored(), "A pattern.", idle="only Polyaxon's client checks it")
    contains = Field("contains", Ignored(), "Values in it.", idle="only Polyaxon's client checks it")
    excludes = Field("excludes", Ignored(), "Values not in it.", idle="only Polyaxon's client checks it")
    keys = Field("keys", Ignored(), "Its keys.", idle="only Polyaxon's client checks it")
    contains_keys = Field("containsKeys", Ignored(), "Keys in it.", idle="only Polyaxon's client checks it")
    excludes_keys = Field(
        "excludesKeys", Ignored(), "Keys not in it.", idle="only Polyaxon's client checks it"
    )


class InputKeys(Table):
    """An input or an output of a component."""

    required = ("name",)
    name = Field("name", Text(), "By which it is used: {{ name }}.")
    description = Field("description", Loose(), "For people; not kept.")
    type = Field(
        "type", Text(), "int, float, bool, str, dict, a list of one of them; others are not checked."
    )
    value = Field("value", Ignored(), "What it is unless a parameter says otherwise.")
    is_optional = Field("isOptional", Truth(), "Whether it may have no value; a value says so too.")
    is_list = Field("isList", Truth(), "Whether it is a list of its type.")
    is_flag = Field("isFlag", Truth(), "Whether it is written as --name alone.")
    arg_format = Field(
        "argFormat", Text(), "How {{ params.name.as_arg }} is written; --name=value unless said."
    )
    to_env = Field("toEnv", Text(), "The environment variable that holds it too.")
    validation = Field("validation", Nested(ValidationKeys), "What it must satisfy.")
    options = Field("options", Ignored(), "One of these; older form of validation.options.")
    delay_validation = Field(
        "delayValidation", Ignored(), "Checks later.", idle="a value is checked where it is given"
    )
    connection = Field(
        "connection", Ignored(), "A store.", idle="connections are of Polyaxon's configuration"
    )
    to_init = Field("toInit", Truth(), "Fetches it before the start.", refused=_FETCHED, fix=_FETCH)


class ParamKeys(Table):
    """A parameter in its full form."""

    value = Field("value", Ignored(), "The value.")
    context_only = Field("contextOnly", Truth(), "Whether it needs no input of its name.")
    to_env = Field("toEnv", Text(), "The environment variable that holds it too.")
    connection = Field(
        "connection", Ignored(), "A store.", idle="connections are of Polyaxon's configuration"
    )
    ref = Field(
        "ref",
        Ignored(),
        "From another run.",
        refused=f"it takes a value from another run; {_MANAGER}",
        fix="write the value itself",
    )
    to_init = Field("toInit", Ignored(), "Fetches it before the start.", refused=_FETCHED, fix=_FETCH)


class CommonKeys(Table):
    """What both an operation and a component may say; the operation's word counts, by its patchStrategy."""

    version = Field("version", Loose(), "1.1.")
    name = Field(
        "name", Text(), "The job's name; a tag after a colon and an owner before a slash are left out."
    )
    description = Field("description", Text(), "Kept as the annotation polyaxon.com/description.")
    tags = Field("tags", OneOrMany(Text()), "Kept as the annotation polyaxon.com/tags.")
    queue = Field("queue", Text(), "The queue; an agent before a slash is left out.")
    namespace = Field("namespace", Text(), "Whose the job is.")
    termination = Field("termination", Nested(TerminationKeys), "When the run is stopped, repeated, removed.")
    plugins = Field("plugins", Nested(PluginKeys), "Polyaxon's helpers; none of them runs.")
    strict_params = Field("strictParams", Truth(), "Whether every parameter needs an input of its name.")
    is_approved = Field("isApproved", Truth(), "false: it is held from the start, until it is resumed.")
    template = Field("template", Nested(TemplateKeys), "Marks what is not to be run as it stands.")
    cost = Field("cost", Ignored(), "A cost.", idle="what the replicas request is counted")
    presets = Field("presets", Ignored(), "Further files.", refused=_MANAGER, fix="write what they say here")
    cache = Field("cache", Ignored(), "Reuses an earlier run.", refused=_MANAGER)
    hooks = Field("hooks", Ignored(), "What runs afterwards.", refused=_MANAGER)
    actions = Field("actions", Ignored(), "What may be run on it.", refused=_MANAGER)
    build = Field(
        "build", Ignored(), "Builds the image before.", refused=_HUB, fix="name an image that exists"
    )
    mount = Field(
        "mount",
        Ignored(),
        "Files of the submitter.",
        refused="files do not travel",
        fix="use the run's volumes",
    )


class ComponentKeys(CommonKeys):
    """A component."""

    required = ("run",)
    kind = Field("kind", Choice(ComponentWord), "component.")
    inputs = Field("inputs", ListOf(Nested(InputKeys)), "What it is parameterised by.")
    outputs = Field(
        "outputs",
        ListOf(Nested(InputKeys)),
        "What it gives; a value or a parameter can be used, no result is kept.",
    )
    run = Field("run", RUN, "What runs.")


class OperationKeys(CommonKeys):
    """An operation: a component with parameters."""

    required = ("component",)
    kind = Field("kind", Choice(OperationWord), "operation.")
    component = Field("component", Nested(ComponentKeys), "The component, which must stand here.")
    params = Field(
        "params", MapOf(None, Param(Nested(ParamKeys))), "Values of inputs, or of names of their own."
    )
    run_patch = Field("runPatch", Ignored(), "Fields of the component's run, merged by patchStrategy.")
    patch_strategy = Field("patchStrategy", Choice(PatchStrategy), "post_merge unless said.")
    is_preset = Field("isPreset", Truth(), "Whether it is no operation but a preset; one is refused.")
    hub_ref = Field("hubRef", Ignored(), "A component of the hub.", refused=_HUB, fix=_HERE)
    path_ref = Field("pathRef", Ignored(), "A component in a file.", refused=_HUB, fix=_HERE)
    url_ref = Field("urlRef", Ignored(), "A component of the web.", refused=_HUB, fix=_HERE)
    dag_ref = Field("dagRef", Ignored(), "A component of a graph.", refused=_MANAGER)
    matrix = Field("matrix", Ignored(), "Many runs.", refused=_MANAGER, fix=_SINGLY)
    parallel = Field("parallel", Ignored(), "Many runs, the older name.", refused=_MANAGER, fix=_SINGLY)
    joins = Field(
        "joins", Ignored(), "Results of other runs.", refused=_MANAGER, fix="write the values under params"
    )
    schedule = Field("schedule", Ignored(), "Repeated runs.", refused=_MANAGER, fix="let a timer submit it")
    events = Field("events", Ignored(), "What starts it.", refused=_MANAGER)
    dependencies = Field(
        "dependencies",
        Ignored(),
        "What runs before.",
        refused=_MANAGER,
        fix="submit it when they have succeeded",
    )
    trigger = Field("trigger", Ignored(), "When dependencies suffice.", refused=_MANAGER)
    conditions = Field("conditions", Ignored(), "Whether it runs.", refused=_MANAGER)
    skip_on_upstream_skip = Field("skipOnUpstreamSkip", Ignored(), "Whether it runs.", refused=_MANAGER)
