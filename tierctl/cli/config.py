"""Read option values from tierctl.toml, which has named profiles like the contexts of kubectl.

    profile = "staging"            # the profile in use if --profile is not given

    [profiles.staging]
    metadata = "file:///var/lib/kafka/data"
    log-dir = ["/var/lib/kafka/data"]

The keys of a profile are option names, with - or _. The command line and the environment override them.
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

from tierctl.errors import UsageError

FILE_NAME = "tierctl.toml"
_CHOOSE_PROFILE = frozenset({"profile", "config_file", "verbose", "quiet"})
_TOP_LEVEL = ("profile", "profiles")
_PREFIX = "TIERCTL_"
_ONLY_TYPED = "apply"
"""The option that only the command line may give, so that a plain command never changes anything."""


def default_config_files(environ: Mapping[str, str]) -> list[Path]:
    """Return the paths at which tierctl.toml is searched, in order; without HOME the list is shorter."""
    home = environ.get("HOME")
    base = environ.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else None)
    return [Path(FILE_NAME), *([Path(base) / "tierctl" / FILE_NAME] if base else [])]


def load_profile(file: Path, name: str | None) -> dict[str, Any]:
    """Return the values of a profile by option name, with underscores. Raise UsageError for a bad file.

    If `name` is None, the key `profile` of the file names the profile; without that key it is the profile
    `default`, which may be missing.
    """
    import tomllib

    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise UsageError(f"{file}: not TOML: {e}") from e
    except OSError as e:
        raise UsageError(f"{file}: {e.strerror}") from e
    for key in raw:
        if key not in _TOP_LEVEL:
            raise UsageError(
                f"{file}: no key {key!r} outside of the profiles",
                hint=_did_you_mean(key, _TOP_LEVEL) or "options belong below [profiles.NAME]",
            )
    profiles = raw.get("profiles", {})
    if not isinstance(profiles, dict) or not all(isinstance(p, dict) for p in profiles.values()):
        raise UsageError(f"{file}: 'profiles' must be tables", hint="write [profiles.NAME]")
    wanted = name or raw.get("profile")
    if wanted is None:
        wanted, profiles = "default", {"default": {}, **profiles}
    if wanted not in profiles:
        known = ", ".join(sorted(profiles)) or "none"
        raise UsageError(f"{file}: no profile {wanted!r}", hint=f"profiles there: {known}")
    return {key.replace("-", "_"): value for key, value in profiles[wanted].items()}


@dataclass(slots=True)
class Settings:
    """The values of the profile in use; the file is read when the first value is asked for."""

    option_names: Collection[str]
    environ: Mapping[str, str]
    profile: str | None = None
    config_file: Path | None = None
    args: Sequence[str] = ()
    """The command line."""
    verbosity: int = 0
    is_quiet: bool = False
    started_s: float = field(default_factory=time.monotonic)
    _values: dict[str, Any] | None = field(default=None, init=False)

    def get(self, option: str) -> Any:
        """Return the profile's value of an option; None if it has none."""
        if self._values is None:
            self._values = self._load()
        return self._values.get(option)

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
        try:
            return bool((given or self.get("output")) == "json")
        except UsageError:
            # A wrong profile is reported as such, when the command asks for its values.
            return False

    def check_environment(self) -> None:
        """Raise UsageError for a variable TIERCTL_… that names no option, or that would apply plans."""
        variables = {name for name in self.environ if name.startswith(_PREFIX)}
        if _PREFIX + _ONLY_TYPED.upper() in variables:
            raise _not_typed(f"{_PREFIX}{_ONLY_TYPED.upper()} is set")
        known = {_PREFIX + name.upper() for name in self.option_names}
        for name in sorted(variables - known):
            raise UsageError(f"{name} is set, but names no option", hint=_did_you_mean(name, known))

    def _load(self) -> dict[str, Any]:
        file = self.config_file or next(filter(Path.is_file, default_config_files(self.environ)), None)
        if file is None:
            if self.profile is not None:
                raise UsageError(
                    f"no profile {self.profile!r}: there is no {FILE_NAME}",
                    hint="name one with --config-file",
                )
            return {}
        values = load_profile(file, self.profile)
        if _ONLY_TYPED in values:
            raise _not_typed(f"{file}: {_ONLY_TYPED} = {str(values[_ONLY_TYPED]).lower()}")
        for key in values:
            if key not in self.option_names:
                raise UsageError(f"{file}: no option {key!r}", hint=_did_you_mean(key, self.option_names))
        return {key: _as_typed(file, key, value) for key, value in values.items()}


def _not_typed(found: str) -> UsageError:
    return UsageError(
        f"{found}: plans are applied only where the command line says --apply",
        hint="remove it, and write --apply into the command or the cron line that is to change something",
    )


def _did_you_mean(key: str, names: Collection[str]) -> str | None:
    import difflib

    close = difflib.get_close_matches(key, names, n=1)
    return f"did you mean {close[0]!r}?" if close else None


def _as_typed(file: Path, key: str, value: Any) -> Any:
    """Return numbers as text, as on the command line, so that click converts both in the same way."""
    if isinstance(value, list):
        return [_as_typed(file, key, item) for item in value]
    if isinstance(value, bool):
        return value
    if isinstance(value, str | int | float):
        return str(value)
    raise UsageError(f"{file}: {key}: expected text, a number, true, false or a list")


class Defaults(Mapping[str, Any]):
    """The mapping in which click looks up the default of an option, or the defaults of a command in a group.

    `keys` maps parameter names of a command to names in the profile. The options of a group itself have no
    defaults here: they choose the file and the profile.
    """

    def __init__(
        self, settings: Settings, *, keys: Mapping[str, str], commands: Mapping[str, "Defaults"]
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._commands = commands

    def __getitem__(self, name: str) -> Any:
        if self._commands:
            return self._commands[name]
        key = self._keys[name]
        value = None if key in _CHOOSE_PROFILE else self._settings.get(key)
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands or self._keys)

    def __len__(self) -> int:
        return len(self._commands or self._keys)
