"""The broker settings of a run: a broker's own file, and the settings that the operator overrides."""

from collections.abc import Sequence
from pathlib import Path

from tierctl.errors import UsageError
from tierctl.locallog import read_properties
from tierctl.model.progress import Progress
from tierctl.model.settings.known import require_bounds, unknown_names


def check_config(file: Path, override: Sequence[str], progress: Progress) -> None:
    """Note settings in a broker's file that no Kafka knows; UsageError for a value that brokers refuse.

    Values that `override` replaces are not used, and so not checked.
    """
    settings = read_properties(file)
    for name, nearest in unknown_names(settings):
        hint = "" if nearest is None else f'; did you mean "{nearest}"?'
        progress.note(f'{file}: no Kafka from 3.9 to 4.4 has the setting "{name}"{hint}')
    overridden = {_parted(text)[0] for text in override}
    require_bounds({name: value for name, value in settings.items() if name not in overridden}, str(file))


def broker_settings(config: Path | None, override: Sequence[str]) -> dict[str, str]:
    """Return the settings in the file `config` and those of `override` as NAME=VALUE; the latter win.

    UsageError for an override that no broker has, or whose value brokers refuse.
    """
    settings = read_properties(config) if config else {}
    for text in override:
        name, equals, value = _parted(text)
        if not equals:
            raise UsageError(f"--override {text}: expected NAME=VALUE")
        for _, nearest in unknown_names({name: value}):
            hint = f'did you mean "{nearest}"?' if nearest else "expected the name of a broker's setting"
            raise UsageError(f'--override: unknown setting "{name}"', hint=hint)
        require_bounds({name: value}, "--override")
        settings[name] = value
    return settings


def _parted(text: str) -> tuple[str, str, str]:
    """Return the name, the equals sign and the value of NAME=VALUE."""
    name, equals, value = text.partition("=")
    return name.strip(), equals, value.strip()
