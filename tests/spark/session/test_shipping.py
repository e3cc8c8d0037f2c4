"""Executors need no installed tierctl: they import the package that is sent to them."""

import io
import subprocess
import zipfile
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from tierctl import kernel
from tierctl.spark.session.jvm import archive, pack

from tests.cli.shell import environment
from tests.spark.clusters import python_without_tierctl, ran_python, spark_home

if TYPE_CHECKING:
    from pathlib import Path

EVERYTHING = """
import pkgutil, sys
from importlib import import_module, resources
from importlib.metadata import entry_points, version
sys.path.insert(0, sys.argv[1])
import tierctl
names = [found.name for found in pkgutil.walk_packages(tierctl.__path__, "tierctl.")]
names.remove("tierctl.__main__")
files = {name: import_module(name).__file__ or "" for name in names}
elsewhere = [name for name, file in files.items() if sys.argv[1] not in file or not file.endswith(".pyc")]
from tierctl.report.formatters.records import load
load("json", {})
styles = sorted(point.name for point in entry_points(group="tierctl.formatters"))
print(len(names), elsewhere, version("tierctl"), styles)
print(resources.files("tierctl.console_consumer").joinpath("Row.java").read_text()[:7])
"""


def test_everything_works_from_the_archive(tmp_path: "Path") -> None:
    python = python_without_tierctl(tmp_path)
    env = environment(PYTHONWARNINGS="error")
    done = ran_python(EVERYTHING, archive(), cwd=tmp_path, env=env, python=python)
    assert done.stderr == ""
    modules, data = done.stdout.splitlines()
    assert modules.endswith(" [] 0.1.0 ['json', 'kafka', 'kip']")
    assert int(modules.split()[0]) > 150
    assert data == "package"
    words = [python, "-c", "import tierctl"]
    hidden = subprocess.run(words, capture_output=True, cwd=tmp_path, env=environment(), check=False)
    assert b"No module named 'tierctl'" in hidden.stderr


COMPILED = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from tierctl.kernel import use_compiled
from tierctl.state.table_arrays import custom_length
use_compiled()
blob = np.frombuffer(bytes([7, 0, 0, 0, 1]), np.uint8)
print(custom_length(blob, 0), sum(custom_length.compiled.stats.cache_hits.values()))
"""


def test_compiled_loops_are_kept_for_the_archive(tmp_path: "Path") -> None:
    """Each worker would compile them for half a minute. Another copy of the archive has the same ones."""
    pytest.importorskip("numba")
    python = python_without_tierctl(tmp_path)
    shown = []
    for name in ("first", "second"):
        copy = tmp_path / name / archive().name
        copy.parent.mkdir()
        copy.write_bytes(archive().read_bytes())
        env = environment(HOME=str(tmp_path))
        done = ran_python(COMPILED, copy, cwd=tmp_path, env=env, python=python)
        assert done.stderr == ""
        shown.append(done.stdout.split())
    assert shown == [["7", "0"], ["7", "1"]]
    (kept,) = (tmp_path / ".cache" / "tierctl").iterdir()
    assert kept.name == f"{kernel._PREFIX}{kernel._digest()}", "the sources have the same ones"
    assert kept.stat().st_mode & 0o777 == 0o700


def test_the_archive_is_the_same_every_time() -> None:
    code = (
        "import hashlib; from tierctl.spark.session.jvm import pack; "
        "print(hashlib.sha256(pack()).hexdigest())"
    )
    sums = {ran_python(code, env=environment(PYTHONHASHSEED=seed)).stdout for seed in ("1", "2")}
    assert len(sums) == 1
    with zipfile.ZipFile(io.BytesIO(pack())) as content:
        assert not [name for name in content.namelist() if name.endswith(".pyc")]


PLAIN = """
import sys
from pyspark.sql import SparkSession
from tests.cli.shell import tierctl as tierctl_here
from tests.spark.clusters import SMALL
import tierctl.spark

builder = SparkSession.builder.master("local-cluster[1,1,1024]")
for name, value in SMALL.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
ran = tierctl_here("segments", "--metadata", sys.argv[1], "--engine", "spark")
print(ran.code, ran.err)
tierctl.spark.register(spark)
tierctl.spark.register(spark)
events = spark.read.format("remote_log_metadata").option("metadata", sys.argv[1]).load()
print(events.where("segment_id is not null").count())
"""


@pytest.mark.matrix
def test_a_plain_session_needs_only_register(capture: "Callable[[str], Path]", tmp_path: "Path") -> None:
    """The interpreter of the workers has no tierctl; the session was not opened by tierctl.

    A command that uses the session needs not even that.
    """
    spark_home()
    python = python_without_tierctl(tmp_path)
    env = environment(PYSPARK_PYTHON=str(python), SPARK_HOME=str(spark_home()), SPARK_LOCAL_IP="127.0.0.1")
    done = ran_python(PLAIN, capture("tiered-cluster") / "after", env=env)
    code, *_, count = done.stdout.split()
    assert (code, int(count) > 100) == ("0", True), done.stdout


def test_a_full_folder_for_temporary_files_is_named(tmp_path: "Path") -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "from tierctl.spark.session.jvm import archive\n"
        "try: archive()\n"
        "except OSError as e: print(e.strerror, e.filename)"
    )
    done = ran_python(code, env=environment(TMPDIR=str(tmp_path), PYTHONDONTWRITEBYTECODE="1"))
    assert done.stdout.startswith(f"File too large {tmp_path}/tierctl-")
