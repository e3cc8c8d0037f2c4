"""The broker settings of a run: a broker's own file, and the settings that the operator overrides.

No other module of `commands` reads such a file.
"""

from collections.abc import Sequence
from pathlib import Path

from tierctl.commands.request import Request
from tierctl.errors import TierctlError, UsageError
from tierctl.metadata.server_properties import broker_file
from tierctl.model.progress import Progress
from tierctl.model.settings import broker
from tierctl.model.settings.known import require_bounds, unknown_names
from tierctl.model.settings.scopes import Origin, SettingSource, StatedSettings, place_of, without_unit

_OVERRIDE = Origin(source=SettingSource.OPTION, name="--override")
_OPTIONS = (
    ("throttle_copy", broker.COPY_MAX_BYTES_PER_SECOND),
    ("throttle_fetch", broker.FETCH_MAX_BYTES_PER_SECOND),
)
"""Fields of a request that state a broker setting, which win over `override`."""


def resolve_broker_settings(request: Request, progress: Progress) -> StatedSettings:
    """Return the settings of the file `broker_config`, of `override` and of options, the last above all.

    Note settings in the file that no version of Kafka knows. Raise UsageError for a value that brokers
    refuse, and for an unknown setting in `override`. Values in the file that are overridden are not used and
    not checked.
    """
    stated = StatedSettings({}, {}) if request.broker_config is None else broker_file(request.broker_config)
    for name, nearest in unknown_names(stated):
        hint = "" if nearest is None else f'; did you mean "{nearest}"?'
        progress.note(f'{place_of(stated, name)}: no Kafka from 3.9 to 4.4 has the setting "{name}"{hint}')
    settings = stated | _overrides(request.override) | _of_options(request)
    require_bounds(settings, str(request.broker_config or "--override"))
    return settings


def stated_in_file(path: Path) -> StatedSettings:
    """Return the settings in a broker's file; UsageError if it can't be read or states a wrong value."""
    stated = broker_file(path)
    require_bounds(stated, str(path))
    return stated


def valid_in_file(path: Path | None) -> StatedSettings:
    """Return the settings in a broker's file whose values are valid; empty if it can't be read.

    For checks of other files, which report the problems of this one elsewhere.
    """
    try:
        stated = StatedSettings({}, {}) if path is None else broker_file(path).stripped()
    except TierctlError:
        return StatedSettings({}, {})
    return stated.only({name: name for name in stated if _is_valid(name, stated[name])})


def _is_valid(name: str, value: str) -> bool:
    row = broker.TABLE.rows.get(name)
    try:
        if row is not None:
            row.parse(value)
    except TierctlError:
        return False
    return True


def _of_options(request: Request) -> StatedSettings:
    """Return the broker settings for which the request has separate options."""
    found = StatedSettings({}, {})
    for name, row in _OPTIONS:
        value = getattr(request, name)
        if value is not None:
            origin = Origin(source=SettingSource.OPTION, name=f"--{name.replace('_', '-')}")
            found |= StatedSettings({row.name: str(value)}, {row.name: origin})
    return found


def _overrides(texts: Sequence[str]) -> StatedSettings:
    """Return the settings in `texts`, NAME=VALUE each; UsageError for one that no broker has."""
    values = dict(_parted(text) for text in texts)
    for name, nearest in unknown_names(values):
        hint = f'did you mean "{nearest}"?' if nearest else "expected the name of a broker's setting"
        raise UsageError(f'--override: unknown setting "{name}"', hint=hint)
    return StatedSettings(values, dict.fromkeys(values, _OVERRIDE))


def _parted(text: str) -> tuple[str, str]:
    """Return the name and the value of NAME=VALUE; UsageError for another form."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--override {name}: expected NAME=VALUE")
    return name.strip(), without_unit(name.strip(), value.strip())
