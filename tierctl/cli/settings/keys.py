"""The names of options in tierctl.toml and in the environment, as `log_dir` of --log-dir."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import cached_property
from typing import Any

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
