"""The settings of one run: the profile in use, the environment, and options that every command has.

tierctl.toml has named profiles like the contexts of kubectl.

    profile = "staging"            # the profile in use if --profile is not given

    [profiles.staging]
    metadata = "file:///var/lib/kafka/data"
    log-dir = ["/var/lib/kafka/data"]

The keys of a profile are option names, with - or _. The command line and the environment override them.
"""

import difflib
import errno
import os
import re
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from itertools import pairwise, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tierctl.errors import ExitCode, UsageError
from tierctl.files import is_file, open_regular, why_distrusted
from tierctl.model.location import require_no_credentials
from tierctl.model.settings.known import FileKind, ProblemKind, SettingProblem, did_you_mean, is_secret
from tierctl.model.settings.scopes import Origin, SettingSource
from tierctl.report.console import Console
from tierctl.storage.throttle import Throttle
from tierctl.wire.files.properties import TomlEntry, TomlProblem, parse_toml, require_kind_of_file

if TYPE_CHECKING:
    from tierctl.report.console import LogFile, LogFormat
    from tierctl.report.prometheus import Meter


CHOOSE_PROFILE = frozenset({"profile", "config_file"})
"""The keys of the options that choose tierctl.toml and a profile in it."""


def option_key(names: Iterable[str]) -> str:
    """Return the key in tierctl.toml, and after TIERCTL_ in the environment, of an option: log_dir."""
    return next(name for name in names if name.startswith("--")).removeprefix("--").replace("-", "_")


class OptionKeys:
    """The keys of all options; those of other commands than the one that runs are read if they are needed.

    `all_commands` imports every command, and returns them. A key that one command takes from the command line
    only may be an option of another command that the environment and profiles have; the first passes it over.
    """

    def __init__(self, all_commands: Callable[[], Iterable[Any]]) -> None:
        self._all_commands = all_commands
        self._own: dict[str, bool] = {}

    def add_own(self, command: Any) -> None:
        """Add the options of the command that runs."""
        self._own |= _keys_of(command)

    def is_typed_only(self, key: str) -> bool:
        """Return whether only the command line gives the option, in every command that has it."""
        return self._own.get(key, True) and self._all.get(key, False)

    def is_option(self, key: str) -> bool:
        """Return whether the environment may have the option."""
        return (key in self._own or key in self._all) and not self.is_typed_only(key)

    def is_setting(self, key: str) -> bool:
        """Return whether a profile may have the option."""
        return key not in CHOOSE_PROFILE and self.is_option(key)

    def nearest(self, key: str) -> str | None:
        """Return the option with the most similar key; None if there is none."""
        return next(iter(get_close_matches(key, filter(self.is_option, self._all), n=1)), None)

    @cached_property
    def _all(self) -> dict[str, bool]:
        found: dict[str, bool] = {}
        for command in self._all_commands():
            for key, is_typed in _keys_of(command).items():
                found[key] = found.get(key, True) and is_typed
        return found


def _keys_of(command: Any) -> dict[str, bool]:
    """Return the keys of a command's options, and whether only the command line gives the option."""
    return {option_key(each.opts): each.name in command.typed_only for each in command.options}


FILE_NAME = "tierctl.toml"
DEFAULT_PROFILE = "default"
_TOP_LEVEL = ("profile", "profiles")
_FILE_BYTES_MAX = 1 << 20
_SAVE_AS = "save it as UTF-8 without a byte order mark"
_TYPES = "text, a number, true, false or a list"


class ProfileValue(NamedTuple):
    """The value of an option in a profile, as text as on the command line, and its line."""

    value: Any
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilesFile:
    """The profiles in tierctl.toml by name, each with its values by option key, and every problem found.

    `chosen` is the profile that the file's key `profile` names. The problems of `problems_of` concern one
    profile, those of `problems` the whole file.
    """

    path: Path
    chosen: ProfileValue | None
    profiles: dict[str, dict[str, ProfileValue]]
    problems: tuple[SettingProblem, ...]
    problems_of: dict[str, tuple[SettingProblem, ...]]

    def name_in_use(self, asked: str | None) -> str:
        """Return the name of the profile in use; `asked` is the requested one, or None."""
        return asked or (DEFAULT_PROFILE if self.chosen is None else str(self.chosen.value))

    def profile(self, asked: str | None) -> dict[str, ProfileValue]:
        """Return the values of the profile in use.

        Without a choice it is the profile `default`, which may be missing. Raise UsageError for the first
        problem of the file or of the profile, and for a profile that the file does not have.
        """
        name = self.name_in_use(asked)
        for problem in (*self.problems, *self.problems_of.get(name, ())):
            raise problem.error
        if name not in self.profiles and (asked or self.chosen):
            raise self.missing(name).error
        return self.profiles.get(name, {})

    def missing(self, name: str) -> SettingProblem:
        """Return the problem of a profile that the file does not have."""
        known = ", ".join(sorted(self.profiles)) or "none"
        return SettingProblem(
            kind=ProblemKind.WRONG_VALUE,
            file=self.path,
            line=self.chosen.line if self.chosen is not None and self.chosen.value == name else None,
            setting="profile",
            message=f"no profile {name!r}",
            hint=f"known profiles: {known}",
        )

    def origin(self, line: int) -> Origin:
        """Return the origin of the value in line `line`."""
        return Origin(source=SettingSource.PROFILE, file=self.path, line=line)


def read_profiles(file: Path, keys: OptionKeys) -> ProfilesFile:
    """Read tierctl.toml to its end; `keys` states what a profile may have.

    Raise UsageError if the file can't be read, if somebody else can change it, or for another kind of file.
    """
    try:
        with os.fdopen(open_regular(file), encoding="utf-8") as opened:
            distrusted = why_distrusted(file, fd=opened.fileno())
            if distrusted is not None:
                raise UsageError(f"{file} is not read: {distrusted}", hint=OWN_FILE_HINT)
            size = os.fstat(opened.fileno()).st_size
            if size > _FILE_BYTES_MAX:
                raise UsageError(
                    f"{file}: expected at most {_FILE_BYTES_MAX} bytes, found {size}",
                    hint="a file of settings has some KiB: take out what is none",
                )
            text = opened.read()
            if text.startswith("\ufeff"):
                raise UsageError(f"{file}: not TOML: it begins with a byte order mark", hint=_SAVE_AS)
    except UnicodeDecodeError as e:
        raise UsageError(f"{file}: not TOML: {e}", hint=_SAVE_AS) from e
    except OSError as e:
        raise UsageError(
            f"{file}: {e.strerror}",
            hint="--config-file, or TIERCTL_CONFIG_FILE, takes a tierctl.toml that this user may read",
        ) from e
    parsed = parse_toml(text)
    reader = _Reader(file, keys)
    for entry in parsed.entries:
        reader.take(entry)
    malformed = [] if parsed.problem is None else [_malformed(file, parsed.problem)]
    if malformed or reader.problems:
        require_kind_of_file(text.encode(), FileKind.PROFILES, file)
    return ProfilesFile(
        path=file,
        chosen=reader.chosen,
        profiles=reader.profiles,
        problems=(*malformed, *reader.problems),
        problems_of={name: tuple(found) for name, found in reader.problems_of.items()},
    )


def _malformed(file: Path, problem: TomlProblem) -> SettingProblem:
    return SettingProblem(
        kind=ProblemKind.MALFORMED,
        file=file,
        line=problem.line,
        message=problem.message,
        hint='write each key and table once, and texts in quotes: key = "value"',
    )


class _Reader:
    """Sorts the entries of the file into profiles and problems."""

    def __init__(self, file: Path, keys: OptionKeys) -> None:
        self._file = file
        self._keys = keys
        self.chosen: ProfileValue | None = None
        self.profiles: dict[str, dict[str, ProfileValue]] = {}
        self.problems: list[SettingProblem] = []
        self.problems_of: dict[str, list[SettingProblem]] = {}

    def take(self, entry: TomlEntry) -> None:
        """Add one entry of the file."""
        top, *rest = entry.path
        keys = [_key(name) for name in (top, *rest[1:2]) if name not in _TOP_LEVEL]
        typed = next(filter(self._keys.is_typed_only, keys), None)
        if typed is not None:
            # Checked in all profiles, not only in the one in use.
            stated = f"{typed.replace('_', '-')} = {str(entry.value).lower()}"
            self.problems.append(self._wrong(entry, *not_typed(stated, typed)))
        elif top not in _TOP_LEVEL:
            self.problems.append(self._misplaced(entry))
        elif top == "profile" and (rest or not isinstance(entry.value, str)):
            self.problems.append(
                self._wrong(entry, "'profile' must be a name", "the table of a profile is [profiles.NAME]")
            )
        elif top == "profile":
            self.chosen = ProfileValue(entry.value, entry.line)
        elif not rest or (len(rest) == 1 and entry.value != {}):
            self.problems.append(self._wrong(entry, "'profiles' must be tables", "write [profiles.NAME]"))
        else:
            profile = self.profiles.setdefault(rest[0], {})
            if len(rest) > 1:
                found = self._take_value(profile, entry)
                self.problems_of.setdefault(rest[0], []).extend(found)

    def _take_value(self, profile: dict[str, ProfileValue], entry: TomlEntry) -> Iterator[SettingProblem]:
        key = _key(entry.path[2])
        text = _text_of({} if len(entry.path) > 3 else entry.value)
        if not self._keys.is_setting(key):
            yield self._unknown(entry, key)
        elif text is None:
            yield self._wrong(entry, f"{key}: expected {_TYPES}", "write the value as on the command line")
        elif key in profile:
            yield self._repeated(entry, profile[key].line)
        else:
            profile[key] = ProfileValue(text, entry.line)

    def _misplaced(self, entry: TomlEntry) -> SettingProblem:
        nearest = next(iter(difflib.get_close_matches(entry.path[0], _TOP_LEVEL, n=1)), None)
        return self._problem(
            entry,
            ProblemKind.UNKNOWN_SETTING,
            f"no key {entry.path[0]!r} outside of the profiles",
            did_you_mean(nearest, "options belong below [profiles.NAME]"),
        )

    def _unknown(self, entry: TomlEntry, key: str) -> SettingProblem:
        hint = did_you_mean(self._keys.nearest(key), "see --help-all of a command, or tierctl-settings(7)")
        if key in CHOOSE_PROFILE:
            hint = f"no profile chooses it: the command line does, or {_PREFIX}{key.upper()}"
        return self._problem(entry, ProblemKind.UNKNOWN_SETTING, f"no option {key!r} in a profile", hint)

    def _repeated(self, entry: TomlEntry, first_line: int) -> SettingProblem:
        return self._problem(
            entry,
            ProblemKind.DUPLICATE,
            f"{entry.path[2]} is stated twice, with - and with _; line {first_line} states it, too",
            "remove one of them",
        )

    def _wrong(self, entry: TomlEntry, message: str, hint: str) -> SettingProblem:
        return self._problem(entry, ProblemKind.WRONG_VALUE, message, hint)

    def _problem(self, entry: TomlEntry, kind: ProblemKind, message: str, hint: str) -> SettingProblem:
        return SettingProblem(
            kind=kind,
            file=self._file,
            line=entry.line,
            setting=entry.path[-1],
            message=message,
            hint=hint,
        )


def not_typed(found: str, key: str) -> tuple[str, str]:
    """Return message and hint for a setting of an option that only the command line may give."""
    option = f"--{key.replace('_', '-')}"
    if key == "apply":
        message = f"{found}: plans are applied only where the command line says --apply"
    else:
        message = f"{found}: only the command line may give {option}"
    return (
        message,
        f"remove it, and write {option} into the command or the cron line that is to have it",
    )


def _key(name: str) -> str:
    """Return the key of an option, which a profile may also write with dashes."""
    return name.replace("-", "_")


def _text_of(value: Any) -> Any:
    """Return numbers as text, as on the command line, so that Typer converts both in the same way.

    None for a value of another type.
    """
    if isinstance(value, list):
        items = [_text_of(item) for item in value]
        return None if None in items else items
    if isinstance(value, bool):
        return value
    return str(value) if isinstance(value, str | int | float) else None


_PREFIX = "TIERCTL_"
_OVERRIDE = "--override"
_OUTPUT = re.compile(r"(?:--output=|-[fqvy]*o)(table|jsonl?|csv)|--output|-[fqvy]*o")
"""The option --output, with its value or before it; a word such as -objects is a value of --sort."""
OWN_FILE_HINT = (
    "give the file and its folder to this user or root, and take the right to write from all others"
)


def _is_file(path: Path) -> bool:
    """Return whether a file is there for this user; under sudo, HOME may be that of another one.

    A file is taken to be there if that is not known, as with a network home: reading it states the error.
    """
    try:
        return is_file(path)
    except OSError as e:
        return e.errno not in {errno.EACCES, errno.EPERM, errno.ENAMETOOLONG}


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
    errors: list[ExitCode] = field(default_factory=list)
    """The exit codes of errors that were printed and did not end the run, since its last summary."""
    begun: threading.Event = field(default_factory=threading.Event)
    """Set once the run carries out a plan."""
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
            option, joined = _OUTPUT.fullmatch(before), _OUTPUT.fullmatch(word)
            if option is not None and option[1] is None:
                typed = word
            elif joined is not None and joined[1] is not None:
                typed = joined[1]
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
        self._file = read_profiles(file, self.keys)
        return self._file.profile(self.profile)


def require_no_credentials_in(args: Sequence[str], environ: Mapping[str, str]) -> None:
    """Raise UsageError for a URI with credentials among the words of a command line, or in TIERCTL_….

    Also raise it for a secret setting in --override: the words are printed as the next command, logged, and
    written into units.
    """
    for before, word in pairwise(["", *args]):
        name, is_joined, value = word.partition("=") if word.startswith("--") else (before, "", word)
        require_no_credentials(name if name.startswith("-") else "the argument", value if is_joined else word)
        setting = value.partition("=")[0].strip() if name == _OVERRIDE else ""
        if is_secret(setting):
            raise UsageError(
                f"{name} {setting}: a command line must not contain credentials",
                hint="state the setting in the file of --broker-config",
            )
    for name, value in environ.items():
        if name.startswith(_PREFIX):
            require_no_credentials(name, value)
