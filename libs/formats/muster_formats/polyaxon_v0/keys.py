"""Fields of Polyaxon 0.x documents (``version: 1``), by kind.

Source: the published schemas of versions 0.1 to 0.6 and the Polyaxonfile specification of that time.
"""

from __future__ import annotations

import enum

from muster_formats.kinds import Choice, Ignored, ListOf, Raw, Text, Truth
from muster_formats.names import Rule
from muster_formats.polyaxon_v0.env_keys import ExperimentEnvKeys, LoneEnvKeys, ReplicasKeys
from muster_formats.polyaxon_v0.kinds import Commands, Pairs
from muster_formats.table import Field, Nested, Table

VERSION = "1"
NAME = "polyaxon-0"

_MANAGER = "it belongs to an experiment manager, not to a scheduler"
_SINGLY = "submit a document for each of its runs, with its values under params"
_NO_CODE = "no code is fetched: replicas run in the work folder, or with the content of the image"
_BUILT = "build defines the image"
_UNDER_BUILD = "move it under build"
_THE_JOB_S = "the job that uses the build defines it"
_NAME = Rule("a name", r"[-A-Za-z0-9_]+", 128, "letters, digits, '-' and '_'")


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


class RunKeys(Table):
    """``run``."""

    required = ("cmd",)
    cmd = Field("cmd", Commands(), "A bash command line, or several, joined with &&.")
    image = Field("image", Ignored(), "The image, in the oldest documents.", refused=_BUILT, fix=_UNDER_BUILD)
    build_steps = Field(
        "build_steps",
        Ignored(),
        "Build steps, in the oldest documents.",
        refused=_BUILT,
        fix=_UNDER_BUILD,
    )
    env_vars = Field(
        "env_vars",
        Ignored(),
        "Variables of the image, in the oldest documents.",
        refused=_BUILT,
        fix=_UNDER_BUILD,
    )


class LoggingKeys(Table):
    """``logging``."""

    level = Field("level", Ignored(), "The log level.", idle="the program decides what it logs")
    formatter = Field(
        "formatter", Ignored(), "The format of log lines.", idle="the program decides how it logs"
    )
    path = Field("path", Ignored(), "The log folder.", idle="the output of every replica is stored")


class InputKeys(Table):
    """One element of ``inputs``."""

    required = ("name",)
    name = Field("name", Text(), "The parameter's name.")
    description = Field("description", Ignored(), "For people.", idle="it is a description only")
    type = Field("type", Choice(IoType), "int, float, str, bool, dict and list are checked.")
    default = Field("default", Ignored(), "The default value.")
    is_optional = Field("is_optional", Truth(), "Whether it is optional.")
    is_list = Field("is_list", Truth(), "Whether it is a list of its type.")
    is_flag = Field("is_flag", Truth(), "Whether true means --name and false nothing.")
    options = Field("options", ListOf(Ignored()), "The allowed values.")


class OpKeys(Table):
    """Fields of every document."""

    kept = frozenset({"version", "kind"})
    name = Field("name", Text(_NAME), "The job's name; default the file's, else the kind.")
    description = Field("description", Text(), "Stored as the annotation polyaxon.com/description.")
    tags = Field("tags", ListOf(Text()), "Stored as the annotation polyaxon.com/tags.")
    logging = Field("logging", Nested(LoggingKeys), "Logging of the program.")
    params = Field("params", Raw(), "Values of {{ name }} placeholders, passed to the program too.")
    declarations = Field("declarations", Raw(), "The older name of params.")
    inputs = Field("inputs", ListOf(Nested(InputKeys)), "The declared parameters and their defaults.")
    outputs = Field(
        "outputs",
        Ignored(),
        "The results of a run.",
        idle="an experiment manager records the results of a run",
    )
    hptuning = Field("hptuning", Ignored(), "A hyper-parameter search.", refused=_MANAGER, fix=_SINGLY)
    matrix = Field("matrix", Ignored(), "A hyper-parameter search.", refused=_MANAGER, fix=_SINGLY)
    project = Field(
        "project",
        Ignored(),
        "The project, in the oldest documents.",
        refused="Muster has namespaces, not projects",
    )
    settings = Field("settings", Ignored(), "A hyper-parameter search.", refused=_MANAGER, fix=_SINGLY)


class BuildFieldKeys(Table):
    """How an image is built."""

    image = Field("image", Text(), "The base image; without build_steps the image itself.")
    build_steps = Field("build_steps", ListOf(Text()), "Commands that build the image, in order.")
    env_vars = Field("env_vars", Pairs(), "Variables of the image.")
    lang_env = Field("lang_env", Text(), "LC_ALL, LANG and LANGUAGE of the image.")
    dockerfile = Field(
        "dockerfile",
        Ignored(),
        "A Dockerfile.",
        refused="images are built from steps",
        fix="write the Dockerfile's FROM as image and its RUN lines as build_steps",
    )
    git = Field(
        "git", Ignored(), "A repository.", refused="no code is fetched", fix="clone it in build_steps"
    )
    context = Field(
        "context",
        Ignored(),
        "The build context.",
        idle="the steps run in the work folder",
    )
    ref = Field("ref", Ignored(), "A commit, or the number of a build.", idle=_NO_CODE)
    commit = Field("commit", Ignored(), "A commit.", idle=_NO_CODE)
    branch = Field("branch", Ignored(), "A branch.", idle=_NO_CODE)
    nocache = Field("nocache", Ignored(), "Whether to build again.", idle="every submission builds again")
    backend = Field("backend", Ignored(), "Who builds.", idle="the runtime decides how images are built")


class BuildKeys(BuildFieldKeys):
    """``build`` within another kind."""

    kept = frozenset({"version", "kind"})
    environment = Field("environment", Nested(LoneEnvKeys), "The environment of the build.")
    name = Field("name", Ignored(), "A name.", idle=_THE_JOB_S)
    description = Field("description", Ignored(), "For people.", idle=_THE_JOB_S)
    tags = Field("tags", Ignored(), "For people.", idle=_THE_JOB_S)
    logging = Field("logging", Ignored(), "Logging of the build.", idle=_THE_JOB_S)
    params = Field("params", Ignored(), "Parameters.", idle=_THE_JOB_S)
    declarations = Field("declarations", Ignored(), "Parameters.", idle=_THE_JOB_S)
    inputs = Field("inputs", Ignored(), "Parameters.", idle=_THE_JOB_S)
    outputs = Field("outputs", Ignored(), "Results of the build.", idle=_THE_JOB_S)


class RunnableKeys(OpKeys):
    """Fields of every kind but a build."""

    build = Field(
        "build", Nested(BuildKeys), "The image; with build_steps it is built first, by a separate job."
    )
    run = Field("run", Nested(RunKeys), "What runs.")
    environment = Field("environment", Nested(LoneEnvKeys), "The environment.")


class ExperimentKeys(RunnableKeys):
    """``kind: experiment``."""

    required = ("run",)
    backend = Field(
        "backend",
        Choice(Backend),
        "The backend that decides role names: native (default), kubeflow or mpi.",
    )
    framework = Field("framework", Text(), "tensorflow, mxnet, horovod or pytorch; required with replicas.")
    environment = Field(
        "environment", Nested(ExperimentEnvKeys), "The master's environment, and the replicas."
    )
    replicas = Field("replicas", Nested(ReplicasKeys), "The replicas besides the master.")


class JobKeys(RunnableKeys):
    """``kind: job``."""

    required = ("run",)
    backend = Field("backend", Ignored(), "The backend.", idle="it has one replica, which Muster runs")
    framework = Field("framework", Ignored(), "A framework.", idle="it has one replica")


class NotebookKeys(RunnableKeys):
    """``kind: notebook``."""

    backend = Field("backend", Choice(NotebookBackend), "notebook (default) or lab.")


class TensorboardKeys(RunnableKeys):
    """``kind: tensorboard``."""


class BuildDocumentKeys(OpKeys, BuildFieldKeys):
    """``kind: build``."""

    environment = Field("environment", Nested(LoneEnvKeys), "The environment of the build.")
    build = Field("build", Nested(BuildKeys), "The fields in a section of their own, as in older documents.")


TABLES: dict[str, type[Table]] = {
    "experiment": ExperimentKeys,
    "job": JobKeys,
    "notebook": NotebookKeys,
    "tensorboard": TensorboardKeys,
    "build": BuildDocumentKeys,
}
"""The table of every supported kind."""
