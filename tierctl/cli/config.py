"""Settings from tierctl.toml: named profiles, as kubectl's contexts.

    profile = "staging"            # the one in use when --profile is not given

    [profiles.staging]
    metadata = "file:///var/lib/kafka/data"
    log-dir = ["/var/lib/kafka/data"]

A profile's keys are option names, with - or _. What the command line or the environment says wins.
"""

import difflib
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tierctl.errors import UsageError

FILE_NAME = "tierctl.toml"
_ABOUT_SETTINGS = frozenset({"profile", "config_file", "verbose"})


def default_config_files(environ: Mapping[str, str]) -> list[Path]:
    """Where tierctl.toml is looked for, in this order; a missing HOME only shortens the list."""
    home = environ.get("HOME")
    base = environ.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else None)
    return [Path(FILE_NAME), *([Path(base) / "tierctl" / FILE_NAME] if base else [])]


def load_profile(file: Path, name: str | None) -> dict[str, Any]:
    """The settings of a profile, keyed by option names with underscores; UsageError for a bad file.

    Without `name` it is the one the file's `profile` names, else `default`, else nothing.
    """
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise UsageError(f"{file}: not TOML: {e}") from e
    except OSError as e:
        raise UsageError(f"{file}: {e.strerror}") from e
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
    """Which file and profile are meant, and what it says, read at the first question only."""

    option_names: Collection[str]
    environ: Mapping[str, str]
    profile: str | None = None
    config_file: Path | None = None
    verbose: bool = False
    _values: dict[str, Any] | None = field(default=None, init=False)

    def get(self, option: str) -> Any:
        """The profile's value of an option, None when it says nothing."""
        if self._values is None:
            self._values = self._load()
        return self._values.get(option)

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
        for key in values:
            if key not in self.option_names:
                raise UsageError(f"{file}: no option {key!r}", hint=_did_you_mean(key, self.option_names))
        return {key: _as_typed(file, key, value) for key, value in values.items()}


def _did_you_mean(key: str, names: Collection[str]) -> str | None:
    close = difflib.get_close_matches(key, names, n=1)
    return f"did you mean {close[0]!r}?" if close else None


def _as_typed(file: Path, key: str, value: Any) -> Any:
    """Scalars as the command line would give them, so that one conversion serves both."""
    if isinstance(value, list):
        return [_as_typed(file, key, item) for item in value]
    if isinstance(value, bool):
        return value
    if isinstance(value, str | int | float):
        return str(value)
    raise UsageError(f"{file}: {key}: expected text, a number, true, false or a list")


class Defaults(Mapping[str, Any]):
    """What typer asks for an option's default, or for the defaults of a group's command.

    `keys` are the profile's names of a command's options. A group's own options have no defaults: which
    file and profile are meant can't come from the profile.
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
        value = None if key in _ABOUT_SETTINGS else self._settings.get(key)
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands or self._keys)

    def __len__(self) -> int:
        return len(self._commands or self._keys)
