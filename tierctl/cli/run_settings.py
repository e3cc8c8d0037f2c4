"""The settings of one run: the profile in use, the environment, and options that every command has."""

import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tierctl.cli.profiles import (
    DEFAULT_PROFILE,
    FILE_NAME,
    OptionKeys,
    ProfilesFile,
    ProfileValue,
    not_typed,
    read_profiles,
)
from tierctl.errors import UsageError
from tierctl.files import why_distrusted
from tierctl.model.location import require_no_credentials
from tierctl.model.settings.known import ProblemKind, SettingProblem, did_you_mean
from tierctl.model.settings.scopes import Origin
from tierctl.report.console import Console
from tierctl.storage.throttle import Throttle

if TYPE_CHECKING:
    from tierctl.report.console import LogFile, LogFormat
    from tierctl.report.prometheus import Meter

_PREFIX = "TIERCTL_"
OWN_FILE_HINT = (
    "give the file and its folder to this user or root, and take the right to write from all others"
)


def _is_file(path: Path) -> bool:
    """Return whether a file is there for this user; under sudo, HOME may be that of another one."""
    try:
        return path.is_file()
    except PermissionError:
        return False


def default_config_files(environ: Mapping[str, str]) -> list[Path]:
    """Return the paths at which tierctl.toml is searched, in order; without HOME the list is shorter."""
    home = environ.get("HOME")
    base = environ.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else None)
    return [Path(FILE_NAME), *([Path(base) / "tierctl" / FILE_NAME] if base else [])]


@dataclass(slots=True)
class RunSettings:
    """The settings of one run; tierctl.toml is read when the first value of a profile is asked for.

    `get` raises no error: `require_valid` does, before a command begins, and `doctor` reports all.
    """

    keys: OptionKeys
    """The options that the environment and a profile may have."""
    environ: Mapping[str, str]
    profile: str | None = None
    config_file: Path | None = None
    args: Sequence[str] = ()
    """The command line."""
    verbosity: int = 0
    is_quiet: bool = False
    command: str = ""
    """The words of the command, without `tierctl`."""
    unattended: set[str] = field(default_factory=set)
    """Names of the options for unattended runs that have a value."""
    state_dir: Path | None = None
    """The state directory of the run's request; None without one, and for a run that only plans."""
    topics: set[str] = field(default_factory=set)
    """The names of the topics that the run read in the metadata."""
    metrics_file: Path | None = None
    meter: "Meter | None" = None
    """Receives the metrics of the run, if a file for them is named."""
    log: "LogFile | None" = None
    log_format: "LogFormat | None" = None
    lock_timeout_ms: int = 0
    """How long the run waits for a lock of another run."""
    throttle: Throttle = field(default_factory=Throttle)
    """The limits of bytes per second, and the total time spent waiting for them."""
    started_s: float = field(default_factory=time.monotonic)
    _values: dict[str, ProfileValue] | None = field(default=None, init=False)
    _file: ProfilesFile | None = field(default=None, init=False)
    _error: UsageError | None = field(default=None, init=False)
    _is_announced: bool = field(default=False, init=False)

    def get(self, option: str) -> Any:
        """Return the value of an option, by its key, in the profile in use; None if it has none."""
        found = self._in_profile.get(option)
        return None if found is None else found.value

    def origin(self, option: str) -> Origin | None:
        """Return the line of tierctl.toml with the value of an option; None if the profile has none."""
        found = self._in_profile.get(option)
        return None if found is None or self._file is None else self._file.origin(found.line)

    def read_again(self) -> None:
        """Forget tierctl.toml: options that are parsed later chose another file or profile."""
        self._values = self._file = self._error = None

    @property
    def profiles_file(self) -> ProfilesFile | None:
        """The tierctl.toml in use; None without one, and if it can't be read."""
        _ = self._in_profile
        return self._file

    @property
    def profile_in_use(self) -> str:
        """The name of the profile in use, also where its values are wrong."""
        if self._file is not None:
            return self._file.name_in_use(self.profile)
        chosen = self.profile or self._toml.get("profile")
        return chosen if isinstance(chosen, str) else DEFAULT_PROFILE

    @property
    def profile_names(self) -> list[str]:
        """The names of the profiles in tierctl.toml, also where their values are wrong."""
        found = self._toml.get("profiles")
        return list(found) if isinstance(found, dict) else []

    @property
    def _toml(self) -> dict[str, Any]:
        """What tierctl.toml states; empty if it can't be read."""
        file = self.file
        if file is None:
            return {}
        try:
            return tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    @property
    def unreadable(self) -> UsageError | None:
        """The error of reading tierctl.toml; None if it was read, or if there is none."""
        _ = self._in_profile
        return self._error if self._file is None else None

    @property
    def console(self) -> Console:
        """A receiver of messages about the run as a whole."""
        return Console(is_quiet=self.is_quiet, is_json=self.wants_json(), log=self.log)

    def announce(self) -> None:
        """Print, once, that the tierctl.toml of the current folder is used, or why it is not."""
        if self._is_announced:
            return
        self._is_announced = True
        why = self._why_not_local
        if why is not None:
            self.console.warn(f"./{FILE_NAME} is not read: {why}; {OWN_FILE_HINT}")
        elif self.config_file is None and self.file == Path(FILE_NAME):
            self.console.say(f"settings of {Path(FILE_NAME).absolute()} are used")

    @property
    def is_read(self) -> bool:
        """Whether tierctl.toml was read, or searched."""
        return self._values is not None

    def require_valid(self) -> None:
        """Raise UsageError for a problem in tierctl.toml that concerns this run, or in the environment."""
        _ = self._in_profile
        if self._error is not None:
            raise self._error
        for problem in self.environment_problems():
            raise problem.error

    @property
    def _in_profile(self) -> dict[str, ProfileValue]:
        if self._values is None:
            self._values = {}
            try:
                self._values = self._load()
            except UsageError as e:
                self._error = e
        return self._values

    def wants_json(self) -> bool:
        """Return whether the run prints JSON, also for a command line that can't be parsed."""
        typed = None
        for before, word in pairwise(["", *takewhile(lambda word: word != "--", self.args)]):
            if before in {"-o", "--output"}:
                typed = word
            elif word.startswith(("--output=", "-o")) and word != "-o":
                typed = word.removeprefix("--output=").removeprefix("-o")
        if typed is not None:
            return typed == "json"
        given = self.environ.get(f"{_PREFIX}OUTPUT")
        return bool((given or self.get("output")) == "json")

    def environment_problems(self) -> Iterator[SettingProblem]:
        """Yield a problem for each variable TIERCTL_… that names no option, or one that must be typed."""
        for name in sorted(name for name in self.environ if name.startswith(_PREFIX)):
            key = name.removeprefix(_PREFIX).lower()
            if self.keys.is_option(key) and name == name.upper():
                continue
            if self.keys.is_typed_only(key):
                message, hint = not_typed(f"{name} is set", key)
                kind = ProblemKind.WRONG_VALUE
            else:
                nearest = self.keys.nearest(key)
                message = f"{name} is set, but names no option"
                hint = did_you_mean(None if nearest is None else f"{_PREFIX}{nearest.upper()}", "unset it")
                kind = ProblemKind.UNKNOWN_SETTING
            yield SettingProblem(kind=kind, setting=name, message=message, hint=hint)

    @property
    def file(self) -> Path | None:
        """The tierctl.toml in use; None if there is none.

        One of the current folder that somebody else can change is passed over. Others are refused by `_load`.
        """
        if self.config_file is not None:
            return self.config_file
        files = filter(_is_file, default_config_files(self.environ))
        return next((each for each in files if each != Path(FILE_NAME) or self._why_not_local is None), None)

    @property
    def _why_not_local(self) -> str | None:
        """Why a tierctl.toml of the current folder is not read; None without one, and if another is named."""
        local = Path(FILE_NAME)
        if self.config_file is not None or not _is_file(local):
            return None
        try:
            return why_distrusted(local)
        except OSError as e:
            return e.strerror or str(e)

    def _load(self) -> dict[str, ProfileValue]:
        file = self.file
        if file is None:
            if self.profile is not None:
                raise UsageError(
                    f"no profile {self.profile!r}: there is no {FILE_NAME}",
                    hint="name one with --config-file",
                )
            return {}
        try:
            distrusted = why_distrusted(file)
        except OSError as e:
            raise UsageError(f"{file}: {e.strerror}") from e
        if distrusted is not None:
            raise UsageError(f"{file} is not read: {distrusted}", hint=OWN_FILE_HINT)
        self._file = read_profiles(file, self.keys)
        return self._file.profile(self.profile)


def require_no_credentials_in(args: Sequence[str], environ: Mapping[str, str]) -> None:
    """Raise UsageError for a URI with credentials among the words of a command line, or in TIERCTL_…."""
    for before, word in pairwise(["", *args]):
        name, is_joined, value = word.partition("=") if word.startswith("--") else (before, "", word)
        require_no_credentials(name if name.startswith("-") else "the argument", value if is_joined else word)
    for name, value in environ.items():
        if name.startswith(_PREFIX):
            require_no_credentials(name, value)
