"""What may stand in a document of Polyaxon 0.x (``version: 1``), by its kind.

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
_NO_CODE = "no code is fetched: replicas run in the work folder, or with what the image holds"
_BUILT = "build says what it runs in"
_UNDER_BUILD = "move it under build"
_THE_JOB_S = "the job that it is built for says it"
_NAME = Rule("a name", r"[-A-Za-z0-9_]+", 128, "letters, digits, '-' and '_'")


class Backend(enum.StrEnum):
    """Who would have run an experiment's replicas, which decides what they are called."""

    NATIVE = "native"
    KUBEFLOW = "kubeflow"
    MPI = "mpi"


class NotebookBackend(enum.StrEnum):
    """Which of Jupyter's faces."""

    NOTEBOOK = "notebook"
    LAB = "lab"


class IoType(enum.StrEnum):
    """What an input holds."""

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
    cmd = Field("cmd", Commands(), "A command line for bash, or several that are joined with &&.")
    image = Field("image", Ignored(), "The image, in the oldest documents.", refused=_BUILT, fix=_UNDER_BUILD)
    build_steps = Field(
        "build_steps",
        Ignored(),
        "How the image is made, in the oldest documents.",
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
    formatter = Field("formatter", Ignored(), "How lines look.", idle="the program decides how it logs")
    path = Field("path", Ignored(), "Where logs are kept.", idle="every replica's output is kept")


class InputKeys(Table):
    """One of ``inputs``."""

    required = ("name",)
    name = Field("name", Text(), "The parameter's name.")
    description = Field("description", Ignored(), "For people.", idle="it describes, and nothing more")
    type = Field("type", Choice(IoType), "int, float, str, bool, dict and list are checked.")
    default = Field("default", Ignored(), "The value where no parameter is given.")
    is_optional = Field("is_optional", Truth(), "Whether it may be left out.")
    is_list = Field("is_list", Truth(), "Whether it is a list of its type.")
    is_flag = Field("is_flag", Truth(), "Whether true stands for --name and false for nothing.")
    options = Field("options", ListOf(Ignored()), "The values that it may have.")


class OpKeys(Table):
    """What every document has."""

    kept = frozenset({"version", "kind"})
    name = Field("name", Text(_NAME), "The job's name; the file's unless said, else the kind.")
    description = Field("description", Text(), "For people; kept as the annotation polyaxon.com/description.")
    tags = Field("tags", ListOf(Text()), "For people; kept as the annotation polyaxon.com/tags.")
    logging = Field("logging", Nested(LoggingKeys), "How the program logs.")
    params = Field("params", Raw(), "Values that {{ name }} stands for, and that the program is told.")
    declarations = Field("declarations", Raw(), "The older name of params.")
    inputs = Field("inputs", ListOf(Nested(InputKeys)), "Which parameters there are, and their defaults.")
    outputs = Field(
        "outputs",
        Ignored(),
        "What a run yields.",
        idle="what a run yields is recorded by an experiment manager",
    )
    hptuning = Field("hptuning", Ignored(), "A search for hyper-parameters.", refused=_MANAGER, fix=_SINGLY)
    matrix = Field("matrix", Ignored(), "A search for hyper-parameters.", refused=_MANAGER, fix=_SINGLY)
    project = Field(
        "project",
        Ignored(),
        "Whose it is, in the oldest documents.",
        refused="there are namespaces and no projects",
    )
    settings = Field("settings", Ignored(), "A search for hyper-parameters.", refused=_MANAGER, fix=_SINGLY)


class BuildFieldKeys(Table):
    """How an image is built."""

    image = Field("image", Text(), "The base image; without build_steps the image itself.")
    build_steps = Field("build_steps", ListOf(Text()), "Commands that make the image, one after the other.")
    env_vars = Field("env_vars", Pairs(), "Variables of the image.")
    lang_env = Field("lang_env", Text(), "LC_ALL, LANG and LANGUAGE of the image.")
    dockerfile = Field(
        "dockerfile",
        Ignored(),
        "A Dockerfile.",
        refused="images are built from steps",
        fix="say image, the Dockerfile's FROM, and build_steps, its RUN lines",
    )
    git = Field(
        "git", Ignored(), "A repository.", refused="no code is fetched", fix="clone it in build_steps"
    )
    context = Field(
        "context",
        Ignored(),
        "The folder to build in.",
        idle="the steps run among the files of the work folder",
    )
    ref = Field("ref", Ignored(), "A commit, or a build by its number.", idle=_NO_CODE)
    commit = Field("commit", Ignored(), "A commit.", idle=_NO_CODE)
    branch = Field("branch", Ignored(), "A branch.", idle=_NO_CODE)
    nocache = Field("nocache", Ignored(), "Whether to build anew.", idle="every submission builds anew")
    backend = Field("backend", Ignored(), "Who builds.", idle="the runtime decides who builds")


class BuildKeys(BuildFieldKeys):
    """``build`` within another kind."""

    kept = frozenset({"version", "kind"})
    environment = Field("environment", Nested(LoneEnvKeys), "How the build runs.")
    name = Field("name", Ignored(), "A name.", idle=_THE_JOB_S)
    description = Field("description", Ignored(), "For people.", idle=_THE_JOB_S)
    tags = Field("tags", Ignored(), "For people.", idle=_THE_JOB_S)
    logging = Field("logging", Ignored(), "How the build logs.", idle=_THE_JOB_S)
    params = Field("params", Ignored(), "Parameters.", idle=_THE_JOB_S)
    declarations = Field("declarations", Ignored(), "Parameters.", idle=_THE_JOB_S)
    inputs = Field("inputs", Ignored(), "Parameters.", idle=_THE_JOB_S)
    outputs = Field("outputs", Ignored(), "What it yields.", idle=_THE_JOB_S)


class RunnableKeys(OpKeys):
    """What every kind but a build has."""

    build = Field(
        "build", Nested(BuildKeys), "The image; with build_steps it is built first, as a job of its own."
    )
    run = Field("run", Nested(RunKeys), "What runs.")
    environment = Field("environment", Nested(LoneEnvKeys), "How it runs.")


class ExperimentKeys(RunnableKeys):
    """``kind: experiment``."""

    required = ("run",)
    backend = Field(
        "backend",
        Choice(Backend),
        "What the replicas are called: as by Polyaxon, Kubeflow or MPI; native unless said.",
    )
    framework = Field("framework", Text(), "tensorflow, mxnet, horovod or pytorch; replicas need one.")
    environment = Field(
        "environment", Nested(ExperimentEnvKeys), "The master's environment, and the replicas."
    )
    replicas = Field("replicas", Nested(ReplicasKeys), "The replicas beside the master.")


class JobKeys(RunnableKeys):
    """``kind: job``."""

    required = ("run",)
    backend = Field("backend", Ignored(), "Who runs it.", idle="it has one replica, which Muster runs")
    framework = Field(
        "framework", Ignored(), "A framework.", idle="it has one replica, which needs to find no other"
    )


class NotebookKeys(RunnableKeys):
    """``kind: notebook``."""

    backend = Field("backend", Choice(NotebookBackend), "notebook, or lab; notebook unless said.")


class TensorboardKeys(RunnableKeys):
    """``kind: tensorboard``."""


class BuildDocumentKeys(OpKeys, BuildFieldKeys):
    """``kind: build``."""

    environment = Field("environment", Nested(LoneEnvKeys), "How the build runs.")
    build = Field("build", Nested(BuildKeys), "The same in a section of its own, as older documents have it.")


TABLES: dict[str, type[Table]] = {
    "experiment": ExperimentKeys,
    "job": JobKeys,
    "notebook": NotebookKeys,
    "tensorboard": TensorboardKeys,
    "build": BuildDocumentKeys,
}
"""The table of every kind that is taken."""
