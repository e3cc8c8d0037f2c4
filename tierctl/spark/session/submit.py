"""Build the spark-submit command line of a tierctl command."""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from tierctl.errors import UsageError
from tierctl.spark.session.settings import SparkSettings, is_credential

ENVIRONMENT = "environment"
"""The folder below the working directory of driver and executors that --python-archive is unpacked to."""
UPLOADS = "spark.kubernetes.file.upload.path"
IMAGE = "spark.kubernetes.container.image"
_ARCHIVED_PYTHON = f"./{ENVIRONMENT}/bin/python"


class DeployMode(StrEnum):
    """Where the driver runs: on this machine or on the cluster."""

    CLIENT = "client"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A command of tierctl, and the master, resources and files to run it with.

    `main` is the path of the script and `package` that of the zip with tierctl.
    """

    settings: SparkSettings
    deploy_mode: DeployMode
    command: Sequence[str]
    main: str
    package: str
    python_archive: str | None = None
    container_image: str | None = None
    resources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        master = self.settings.master
        if master is None:
            raise UsageError("--master is missing", hint="yarn, k8s://https://host:port or spark://host:port")
        if self.settings.is_connect:
            raise UsageError(
                "spark-submit can't use a Spark Connect server",
                hint="run the command with --master sc://... itself",
            )
        if self.deploy_mode is DeployMode.CLUSTER:
            _require_cluster_mode(self, master)
        if master.startswith("k8s://") and self.container_image is None and IMAGE not in self.settings.conf:
            raise UsageError(
                "--container-image is missing", hint="an image with Spark, Python and tierctl's libraries"
            )
        for word in self.command:
            name, equals, value = word.partition("=")
            if is_credential("", word) or (equals and is_credential(name, value)):
                raise UsageError(
                    f"{name if equals else 'an argument'}: a command line must not contain credentials",
                    hint="put them in a file, a profile, or the environment of the driver",
                )

    def words(self) -> list[str]:
        """Return the arguments of spark-submit."""
        return [
            *("--master", str(self.settings.master), "--deploy-mode", str(self.deploy_mode)),
            *("--name", f"tierctl {self.command[0]}"),
            *(word for name, value in self.resources.items() for word in (f"--{name}", value)),
            *(("--archives", f"{self.python_archive}#{ENVIRONMENT}") if self.python_archive else ()),
            *("--py-files", self.package),
            *(word for name, value in self._conf() for word in ("--conf", f"{name}={value}")),
            self.main,
            *self.command,
        ]

    def _conf(self) -> Iterator[tuple[str, str]]:
        """Yield the settings that the driver needs before it starts; the operator's replace the defaults."""
        given = self.settings.conf
        defaults = dict(self._pythons())
        if self.container_image is not None:
            defaults[IMAGE] = self.container_image
        yield from (defaults | dict(given)).items()

    def _pythons(self) -> Iterator[tuple[str, str]]:
        """Yield the settings that name the interpreter of driver and executors."""
        master = str(self.settings.master)
        if self.python_archive is None:
            # On machines with their own file systems, Spark uses their python3.
            if not master.startswith(("yarn", "k8s://")):
                yield "spark.pyspark.python", sys.executable
            elif self.deploy_mode is DeployMode.CLIENT:
                yield "spark.pyspark.driver.python", sys.executable
        elif self.deploy_mode is DeployMode.CLIENT:
            yield "spark.pyspark.driver.python", sys.executable
            yield "spark.pyspark.python", _ARCHIVED_PYTHON
        elif master == "yarn":
            yield "spark.yarn.appMasterEnv.PYSPARK_PYTHON", _ARCHIVED_PYTHON
            yield "spark.executorEnv.PYSPARK_PYTHON", _ARCHIVED_PYTHON
        else:
            yield "spark.pyspark.python", _ARCHIVED_PYTHON


def _require_cluster_mode(submission: Submission, master: str) -> None:
    """Raise UsageError if the master runs no Python drivers, or if its pods cannot read the files."""
    if not master.startswith(("yarn", "k8s://")):
        raise UsageError(
            f"--deploy-mode cluster: {master} runs no Python drivers", hint="use --deploy-mode client"
        )
    local = [
        path
        for path in (submission.main, submission.package, submission.python_archive)
        if path and not re.match(r"[a-z0-9]+:", path)
    ]
    if master.startswith("k8s://") and local and UPLOADS not in submission.settings.conf:
        raise UsageError(
            f"--deploy-mode cluster: pods don't see {local[0]}",
            hint=f"--spark-conf {UPLOADS}=s3a://bucket/folder, where spark-submit puts such files",
        )


def program() -> str:
    """Return the path of spark-submit in SPARK_HOME, on PATH or in PySpark; raise UsageError without one."""
    home = os.environ.get("SPARK_HOME")
    found = shutil.which(str(Path(home, "bin", "spark-submit")) if home else "spark-submit")
    if found is None and home is None:
        spec = find_spec("pyspark")
        own = Path(spec.origin).parent if spec and spec.origin else Path()
        found = shutil.which(str(own / "bin" / "spark-submit"))
    if found is None:
        raise UsageError("there is no spark-submit", hint="set SPARK_HOME, or pip install 'tierctl[spark]'")
    return found
