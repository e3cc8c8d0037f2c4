"""The wheel also installs man pages, completions, the jar, and files for operations."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from tierctl.console_consumer import JAR

from tests.cli.shell import environment

ROOT = Path(__file__).parents[2]
SHARED_JAR = Path("share", "java", JAR.name)
COMPLETIONS = {
    "tierctl.bash": "share/bash-completion/completions/tierctl",
    "_tierctl": "share/zsh/site-functions/_tierctl",
    "tierctl.fish": "share/fish/vendor_completions.d/tierctl.fish",
}
"""The paths below a prefix, or below ~/.local, in which shells search for completions."""


@pytest.fixture(scope="module")
def sources(module_folder: Path) -> Path:
    """Return a copy of the files from which the wheel is built; `.gitignore` excludes the jar."""
    folder = module_folder / "sources"
    skip = shutil.ignore_patterns("__pycache__", "*.jar")
    for name in ("tierctl", "man", "completions", ".hatch"):
        shutil.copytree(ROOT / name, folder / name, ignore=skip)
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, folder)
    return folder


def built(sources: Path, folder: Path) -> Path:
    (wheel,) = WheelBuilder(str(sources)).build(directory=str(folder))
    return Path(wheel)


@pytest.fixture(scope="module")
def prefix(sources: Path, module_folder: Path) -> Path:
    """Return an environment with the installed wheel and the jar, without its dependencies."""
    (sources / JAR.relative_to(ROOT)).write_bytes(b"the jar")
    folder = module_folder / "prefix"
    options = ("--quiet", "--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check")
    wheel = built(sources, folder)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--ignore-installed", "--prefix", folder, wheel],
        check=True,
        env=environment(HOME=str(folder)),
    )
    return folder


def files_below(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


def test_shared_files_are_installed_where_programs_search(prefix: Path) -> None:
    pages = {Path("share/man", f"man{page.suffix[1:]}", page.name) for page in (ROOT / "man").glob("*.[17]")}
    operations = {Path("share/tierctl") / path for path in files_below(ROOT / "tierctl" / "share")}
    completions = set(map(Path, COMPLETIONS.values()))
    installed = {Path("share") / path for path in files_below(prefix / "share")}
    assert installed == pages | operations | completions | {SHARED_JAR}
    for name, path in COMPLETIONS.items():
        assert (prefix / path).read_text() == (ROOT / "completions" / name).read_text()


def test_format_finds_the_jar(prefix: Path) -> None:
    (package,) = prefix.glob("lib*/python*/site-packages")
    ran = subprocess.run(
        [prefix / "bin" / "tierctl", "format", "--formatter-jar"],
        capture_output=True,
        text=True,
        check=True,
        env=environment(PYTHONPATH=str(package)),
    )
    jar = Path(ran.stdout.strip())
    assert jar == package / JAR.relative_to(ROOT)
    assert jar.read_bytes() == (prefix / SHARED_JAR).read_bytes() == b"the jar"


def test_a_jar_that_is_built_after_the_installation_is_found(sources: Path, tmp_path: Path) -> None:
    """The README's `pip install '.[all]'` copies the package; `make formatter` then builds in the clone."""
    clone, prefix = tmp_path / "a clone", tmp_path / "prefix"
    shutil.copytree(sources, clone, ignore=shutil.ignore_patterns("*.jar"))
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--ignore-installed")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--prefix", prefix, clone],
        check=True,
        env=environment(HOME=str(tmp_path)),
    )
    (package,) = prefix.glob("lib*/python*/site-packages")
    asking = [prefix / "bin" / "tierctl", "format", "--formatter-jar"]
    env = environment(PYTHONPATH=str(package))
    assert subprocess.run(asking, capture_output=True, check=False, env=env).returncode == 10
    (clone / JAR.relative_to(ROOT)).write_bytes(b"the jar")
    ran = subprocess.run(asking, capture_output=True, text=True, check=True, env=env)
    assert Path(ran.stdout.strip()) == clone / JAR.relative_to(ROOT)


def test_a_wheel_without_the_jar_says_so(
    sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (sources / JAR.relative_to(ROOT)).unlink(missing_ok=True)
    assert built(sources, tmp_path).is_file()
    captured = capsys.readouterr()
    assert "make wheel" in captured.out + captured.err
