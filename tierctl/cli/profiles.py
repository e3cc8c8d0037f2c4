"""Read tierctl.toml, which has named profiles like the contexts of kubectl.

    profile = "staging"            # the profile in use if --profile is not given

    [profiles.staging]
    metadata = "file:///var/lib/kafka/data"
    log-dir = ["/var/lib/kafka/data"]

The keys of a profile are option names, with - or _. The command line and the environment override them.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from tierctl.errors import UsageError
from tierctl.model.settings.known import FileKind, ProblemKind, SettingProblem, did_you_mean
from tierctl.model.settings.scopes import Origin, SettingSource
from tierctl.wire.files.properties import TomlEntry, TomlProblem, parse_toml, require_kind_of_file

_CHOOSE_PROFILE = frozenset({"profile", "config_file"})


def option_key(names: Iterable[str]) -> str:
    """Return the key in tierctl.toml, and after TIERCTL_ in the environment, of an option: log_dir."""
    return next(name for name in names if name.startswith("--")).removeprefix("--").replace("-", "_")


class OptionKeys:
    """The keys of all options; those of other commands than the one that runs are read if they are needed.

    `all_commands` imports every command, and returns them.
    """

    def __init__(self, all_commands: Callable[[], Iterable[Any]]) -> None:
        self._all_commands = all_commands
        self._own: dict[str, bool] = {}

    def add_own(self, command: Any) -> None:
        """Add the options of the command that runs."""
        self._own |= _keys_of(command)

    def is_typed_only(self, key: str) -> bool:
        """Return whether only the command line gives the option."""
        return self._own[key] if key in self._own else self._all.get(key, False)

    def is_option(self, key: str) -> bool:
        """Return whether the environment may have the option."""
        return (key in self._own or key in self._all) and not self.is_typed_only(key)

    def is_setting(self, key: str) -> bool:
        """Return whether a profile may have the option."""
        return key not in _CHOOSE_PROFILE and self.is_option(key)

    def nearest(self, key: str) -> str | None:
        """Return the option with the most similar key; None if there is none."""
        return next(iter(get_close_matches(key, filter(self.is_option, self._all), n=1)), None)

    @cached_property
    def _all(self) -> dict[str, bool]:
        found: dict[str, bool] = {}
        for command in self._all_commands():
            found |= _keys_of(command)
        return found


def _keys_of(command: Any) -> dict[str, bool]:
    """Return the keys of a command's options, and whether only the command line gives the option."""
    return {option_key(each.opts): each.name in command.typed_only for each in command.options}


FILE_NAME = "tierctl.toml"
DEFAULT_PROFILE = "default"
_TOP_LEVEL = ("profile", "profiles")
_FILE_BYTES_MAX = 1 << 20
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
            line=None if self.chosen is None else self.chosen.line,
            setting="profile",
            message=f"no profile {name!r}",
            hint=f"known profiles: {known}",
        )

    def origin(self, line: int) -> Origin:
        """Return the origin of the value in line `line`."""
        return Origin(source=SettingSource.PROFILE, file=self.path, line=line)


def read_profiles(file: Path, keys: OptionKeys) -> ProfilesFile:
    """Read tierctl.toml to its end; `keys` states what a profile may have.

    Raise UsageError if the file can't be read, or is another kind of settings file.
    """
    try:
        size = file.stat().st_size
        if size > _FILE_BYTES_MAX:
            raise UsageError(
                f"{file}: expected at most {_FILE_BYTES_MAX} bytes, found {size}",
                hint="a file of settings has some KiB: take out what is none",
            )
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as e:
        raise UsageError(f"{file}: not TOML: {e}") from e
    except OSError as e:
        raise UsageError(f"{file}: {e.strerror}") from e
    parsed = parse_toml(text)
    reader = _Reader(file, keys)
    for entry in parsed.entries:
        reader.take(entry)
    if parsed.problems or reader.problems:
        require_kind_of_file(text.encode(), FileKind.PROFILES, file)
    return ProfilesFile(
        path=file,
        chosen=reader.chosen,
        profiles=reader.profiles,
        problems=(*(_of_toml(file, each) for each in parsed.problems), *reader.problems),
        problems_of={name: tuple(found) for name, found in reader.problems_of.items()},
    )


def _of_toml(file: Path, problem: TomlProblem) -> SettingProblem:
    is_repeated = problem.first_line is not None
    return SettingProblem(
        kind=ProblemKind.DUPLICATE if is_repeated else ProblemKind.MALFORMED,
        file=file,
        line=problem.line,
        message=problem.message,
        hint="remove one of them" if is_repeated else 'write texts in quotes: key = "value"',
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
        nearest = self._keys.nearest(key)
        return self._problem(
            entry,
            ProblemKind.UNKNOWN_SETTING,
            f"no option {key!r}",
            did_you_mean(nearest, "see 'tierctl --help' for the options"),
        )

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
