"""Load a formatter by its name among the entry points of the group `tierctl.formatters`."""

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from tierctl.errors import TierctlError, UsageError
from tierctl.report.formatters.records import Formatter

GROUP = "tierctl.formatters"


def names() -> list[str]:
    """Return the names of all styles: those of tierctl and those of installed plugins."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def load(style: str, properties: Mapping[str, str]) -> Formatter:
    """Return the formatter of the name `style` with these properties.

    Raise UsageError if no package or several packages have a formatter of this name, or if the plugin
    fails; the message names the package.
    """
    found = {(point.value, _package(point)): point for point in entry_points(group=GROUP, name=style)}
    if not found:
        raise UsageError(f"no style {style!r}", hint=f"there are {', '.join(names()) or 'none'}")
    if len(found) > 1:
        owners = ", ".join(sorted(package for _, package in found))
        raise UsageError(f"style {style!r} is claimed by {owners}", hint="uninstall all but one")
    point = next(iter(found.values()))
    try:
        formatter: Formatter = point.load()(properties)
    except TierctlError:
        raise
    # A plugin is foreign code: any exception that it raises means that the plugin is broken.
    except Exception as e:
        raise UsageError(
            f"style {style!r} of {_package(point)} can't be loaded: {type(e).__name__}: {e}",
            hint=f"its entry point is {point.value}",
        ) from e
    if not callable(getattr(formatter, "lines", None)):
        raise UsageError(
            f"style {style!r} of {_package(point)} is no formatter: it has no lines(records)",
            hint=f"its entry point is {point.value}",
        )
    return formatter


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "an unknown package"
