"""Fields of Polyaxon 0.x documents (``version: 1``) by kind, and their types."""

from __future__ import annotations

import enum

from muster_formats.field_types import AnyValue, Boolean, Choice, ListOf, RawMapping, String
from muster_formats.names import NameRule
from muster_formats.polyaxon_v0.environment import V0ExperimentEnvFields, V0LoneEnvFields, V0ReplicasFields
from muster_formats.polyaxon_v0.field_types import Commands, Pairs
from muster_formats.schema import Field, Nested, Table, ignored, rejected

VERSION = "1"
NAME = "polyaxon-0"

_MANAGER = "it belongs to an experiment manager, not to a scheduler"
_SINGLY = "submit a document for each of its runs, with its values under params"
_NO_CODE = "no code is fetched: replicas run in the work folder, or with the content of the image"
_BUILT = "build defines the image"
_UNDER_BUILD = "move it under build"
_THE_JOB_S = "the job that uses the build defines it"
_NAME = NameRule("a name", r"[-A-Za-z0-9_]+", 128, "letters, digits, '-' and '_'")


class Backend(enum.StrEnum):
    """The backend of an experiment, which decides the names of the roles."""

    NATIVE = "native"
    KUBEFLOW = "kubeflow"
    MPI = "mpi"


class NotebookBackend(enum.StrEnum):
    """The Jupyter interface."""

    NOTEBOOK = "notebook"
    LAB = "lab"


class IoType(enum.StrEnum):
    """The type of an input."""

    INT = "int"
    FLOAT = "float"
    STR = "str"
    BOOL = "bool"
    DICT = "dict"
    LIST = "list"
    URI = "uri"
    AUTH = "auth"
    PATH = "path"
    METRIC = "metric"
    METADATA = "metadata"
    GCS_PATH = "gcs_path"
    S3_PATH = "s3_path"
    AZURE_PATH = "azure_path"


class V0RunFields(Table):
    """``run``."""

    required = ("cmd",)
    cmd = Field("cmd", Commands(), "A bash command line, or several, joined with &&.")
    image = rejected("image", "The image, in the oldest documents.", _BUILT, fix=_UNDER_BUILD)
    build_steps = rejected("build_steps", "Build steps, in the oldest documents.", _BUILT, fix=_UNDER_BUILD)
    env_vars = rejected("env_vars", "Variables, in the oldest documents.", _BUILT, fix=_UNDER_BUILD)


class V0LoggingFields(Table):
    """``logging``."""

    level = ignored("level", "The log level.", "the program decides what it logs")
    formatter = ignored("formatter", "The format of log lines.", "the program decides how it logs")
    path = ignored("path", "The log folder.", "the output of every replica is stored")


class V0InputFields(Table):
    """One element of ``inputs``."""

    required = ("name",)
    name = Field("name", String(), "The parameter's name.")
    description = ignored("description", "For people.", "it is a description only")
    type = Field("type", Choice(IoType), "int, float, str, bool, dict and list are checked.")
    default = Field("default", AnyValue(), "The default value.")
    is_optional = Field("is_optional", Boolean(), "Whether it is optional.")
    is_list = Field("is_list", Boolean(), "Whether it is a list of its type.")
    is_flag = Field("is_flag", Boolean(), "Whether true means --name and false nothing.")
    options = Field("options", ListOf(AnyValue()), "The allowed values.")


class V0OpFields(Table):
    """Fields of every document."""

    unread = frozenset({"version", "kind"})
    name = Field("name", String(_NAME), "The job's name; default the file's, else the kind.")
    description = Field("description", String(), "Stored as the annotation polyaxon.com/description.")
    tags = Field("tags", ListOf(String()), "Stored as the annotation polyaxon.com/tags.")
    logging = Field("logging", Nested(V0LoggingFields), "Logging of the program.")
    params = Field("params", RawMapping(), "Values of {{ name }} placeholders, passed to the program too.")
    declarations = Field("declarations", RawMapping(), "The older name of params.")
    inputs = Field("inputs", ListOf(Nested(V0InputFields)), "The declared parameters and their defaults.")
    outputs = ignored("outputs", "The results of a run.", "an experiment manager records them")
    hptuning = rejected("hptuning", "A hyper-parameter search.", _MANAGER, fix=_SINGLY)
    matrix = rejected("matrix", "A hyper-parameter search.", _MANAGER, fix=_SINGLY)
    project = rejected("project", "The project, in old documents.", "Muster has namespaces, not projects")
    settings = rejected("settings", "A hyper-parameter search.", _MANAGER, fix=_SINGLY)


class V0BuildFieldFields(Table):
    """How an image is built."""

    image = Field("image", String(), "The base image; without build_steps the image itself.")
    build_steps = Field("build_steps", ListOf(String()), "Commands that build the image, in order.")
    env_vars = Field("env_vars", Pairs(), "Variables of the image.")
    lang_env = Field("lang_env", String(), "LC_ALL, LANG and LANGUAGE of the image.")
    dockerfile = rejected(
        "dockerfile",
        "A Dockerfile.",
        "images are built from steps",
        fix="write the Dockerfile's FROM as image and its RUN lines as build_steps",
    )
    git = rejected("git", "A repository.", "no code is fetched", fix="clone it in build_steps")
    context = ignored("context", "The build context.", "the steps run in the work folder")
    ref = ignored("ref", "A commit, or the number of a build.", _NO_CODE)
    commit = ignored("commit", "A commit.", _NO_CODE)
    branch = ignored("branch", "A branch.", _NO_CODE)
    nocache = ignored("nocache", "Whether to build again.", "every submission builds again")
    backend = ignored("backend", "Who builds.", "the runtime decides how images are built")


class V0BuildFields(V0BuildFieldFields):
    """``build`` within another kind."""

    unread = frozenset({"version", "kind"})
    environment = Field("environment", Nested(V0LoneEnvFields), "The environment of the build.")
    name = ignored("name", "A name.", _THE_JOB_S)
    description = ignored("description", "For people.", _THE_JOB_S)
    tags = ignored("tags", "For people.", _THE_JOB_S)
    logging = ignored("logging", "Logging of the build.", _THE_JOB_S)
    params = ignored("params", "Parameters.", _THE_JOB_S)
    declarations = ignored("declarations", "Parameters.", _THE_JOB_S)
    inputs = ignored("inputs", "Parameters.", _THE_JOB_S)
    outputs = ignored("outputs", "Results of the build.", _THE_JOB_S)


class V0RunnableFields(V0OpFields):
    """Fields of every kind but a build."""

    build = Field("build", Nested(V0BuildFields), "The image; a separate job runs its build_steps first.")
    run = Field("run", Nested(V0RunFields), "What runs.")
    environment = Field("environment", Nested(V0LoneEnvFields), "The environment.")


class V0ExperimentFields(V0RunnableFields):
    """``kind: experiment``."""

    required = ("run",)
    backend = Field("backend", Choice(Backend), "Decides role names: native (default), kubeflow or mpi.")
    framework = Field("framework", String(), "tensorflow, mxnet, horovod or pytorch; required with replicas.")
    environment = Field(
        "environment", Nested(V0ExperimentEnvFields), "The master's environment, and replicas."
    )
    replicas = Field("replicas", Nested(V0ReplicasFields), "The replicas besides the master.")


class V0JobFields(V0RunnableFields):
    """``kind: job``."""

    required = ("run",)
    backend = ignored("backend", "The backend.", "it has one replica, which Muster runs")
    framework = ignored("framework", "A framework.", "it has one replica")


class V0NotebookFields(V0RunnableFields):
    """``kind: notebook``."""

    backend = Field("backend", Choice(NotebookBackend), "notebook (default) or lab.")


class V0TensorboardFields(V0RunnableFields):
    """``kind: tensorboard``."""


class V0BuildDocumentFields(V0OpFields, V0BuildFieldFields):
    """``kind: build``."""

    environment = Field("environment", Nested(V0LoneEnvFields), "The environment of the build.")
    build = Field("build", Nested(V0BuildFields), "The fields in an own section, as in older documents.")


TABLES: dict[str, type[Table]] = {
    "experiment": V0ExperimentFields,
    "job": V0JobFields,
    "notebook": V0NotebookFields,
    "tensorboard": V0TensorboardFields,
    "build": V0BuildDocumentFields,
}
"""The table of every supported kind."""
