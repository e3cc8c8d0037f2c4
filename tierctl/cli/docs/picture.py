"""Draw the picture of the README: what tierctl reads, the steps of its flow, and the commands by group."""

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Final
from xml.sax.saxutils import escape

_WIDTH, _MARGIN, _LINE = 960, 20, 18
_GROUPS_TOP: Final = 324
_TITLE_CHARACTERS, _NAME_CHARACTERS = 21, 10
_STYLE: Final = """
  .ground { fill: #ffffff; stroke: #d0d7de }
  .outside { fill: #f6f8fa; stroke: #8c959f }
  .program { fill: none; stroke: #0969da; stroke-width: 1.5 }
  .step { fill: #ddf4ff; stroke: #0969da }
  .change { fill: #fff1e5; stroke: #bc4c00 }
  .arrow { fill: none; stroke: #57606a; stroke-width: 1.5 }
  .changing { fill: none; stroke: #bc4c00; stroke-width: 1.5 }
  .head { fill: #57606a }
  .changing-head { fill: #bc4c00 }
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
  .title { font-weight: 600 }
  .small { font-size: 12px; fill: #57606a }
  .command { font-family: ui-monospace, Menlo, Consolas, monospace; fill: #0550ae }
  .option { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 12px; fill: #bc4c00 }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117; stroke: #30363d }
    .outside { fill: #161b22; stroke: #6e7681 }
    .program, .step { stroke: #4493f8 }
    .step { fill: #121d2f }
    .change { fill: #2b1a0d; stroke: #db6d28 }
    .arrow { stroke: #9198a1 }
    .changing { stroke: #db6d28 }
    .head { fill: #9198a1 }
    .changing-head { fill: #db6d28 }
    text { fill: #e6edf3 }
    .small { fill: #9198a1 }
    .command { fill: #79c0ff }
    .option { fill: #f0883e }
  }
"""
_DESCRIPTION: Final = (
    "tierctl reads the metadata topic, brokers and their log directories, folds the events into a state, "
    "decides a plan, and reports it. With --apply it also changes the tier and publishes events."
)
_HEADS: Final = ("head", "changing-head")


def picture(groups: Mapping[str, Sequence[str]]) -> str:
    """Return the picture as SVG; `groups` has the names of commands by title."""
    titles = max(len(_folded(title)) for title in groups)
    rows = max(-(-len(names) // _columns(names)) for names in groups.values())
    height = _GROUPS_TOP + 28 + (titles + rows) * _LINE
    view = f'viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="title description"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {view}>',
        '<title id="title">What tierctl does</title>',
        f'<desc id="description">{_DESCRIPTION}</desc>',
        f"<style>{_STYLE}</style>",
        f"<defs>{''.join(map(_head, _HEADS))}</defs>",
        _box("ground", 1, 1, _WIDTH - 2, height - 2),
        *_outside(),
        *_flow(),
        *_groups(groups),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _outside() -> Iterator[str]:
    """Yield what tierctl reads and writes: the metadata topic, brokers, the tier, and the output."""
    yield from _labelled("outside", 20, 84, 190, ("Metadata topic", "__remote_log_metadata"))
    yield from _labelled("outside", 20, 184, 190, ("Brokers", "settings, leaders, log", "directories"))
    yield from _labelled("outside", 750, 84, 190, ("Tier", "S3, HDFS, or a folder", "segments and indexes"))
    yield from _labelled("outside", 750, 194, 190, ("Operator", "table, JSON, exit code,", "metrics, log"))


def _flow() -> Iterator[str]:
    """Yield the steps, and the arrows between the steps and the external systems."""
    yield _box("program", 250, 60, 460, 216)
    yield _text("title", 264, 82, "tierctl")
    yield from _labelled("step", 264, 140, 98, ("read", "events, logs"), height=56)
    yield from _labelled("step", 386, 140, 92, ("fold", "into a state"), height=56)
    yield from _labelled("step", 506, 140, 76, ("plan", "decides"), height=56)
    yield from _labelled("change", 614, 92, 84, ("apply", "changes"), height=56)
    yield from _labelled("step", 614, 204, 84, ("report", "prints"), height=56)
    yield _text("option", 536, 122, "--apply")
    yield from (_arrow(path) for path in ("M362 168H382", "M478 168H502", "M210 112H238V156H260"))
    yield from (_arrow(path) for path in ("M210 216H238V180H260", "M544 196V232H610", "M698 232H746"))
    yield from (_arrow(path, is_change=True) for path in ("M582 156H598V120H610", "M698 120H746"))
    yield from map(_arrow, ("M656 148V200", "M750 156H728V290H312V200"))
    yield _text("small", 390, 307, "segments and indexes, for fetch and verify")
    yield _arrow("M656 92V34H115V80", is_change=True)
    yield _text("small", 300, 28, "events: a copy or a deletion has started, has finished")


def _groups(groups: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a column for each group of commands: the title up to its semicolon, and the commands."""
    width = (_WIDTH - _MARGIN * (len(groups) + 1)) / len(groups)
    top = _GROUPS_TOP + 28 + max(len(_folded(title)) for title in groups) * _LINE
    for i, (title, names) in enumerate(groups.items()):
        x = _MARGIN + i * (width + _MARGIN)
        yield f'<path class="arrow" d="M{x:g} {_GROUPS_TOP}H{x + width:g}"/>'
        for j, line in enumerate(_folded(title)):
            yield _text("title", x, _GROUPS_TOP + 22 + j * _LINE, line)
        columns = _columns(names)
        for j, name in enumerate(names):
            yield _text("command", x + j % columns * width / 2, top + j // columns * _LINE, name)


def _folded(title: str) -> list[str]:
    """Return the lines of the title of a group, up to its semicolon."""
    return wrap(title.partition(";")[0], _TITLE_CHARACTERS)


def _columns(names: Sequence[str]) -> int:
    """Return in how many columns the names of a group's commands fit."""
    return 1 if max(map(len, names)) > _NAME_CHARACTERS else 2


def _labelled(kind: str, x: int, y: int, width: int, labels: Sequence[str], height: int = 0) -> Iterator[str]:
    """Yield a box with a title and smaller lines below it."""
    yield _box(kind, x, y, width, height or 22 + _LINE * len(labels))
    for i, label in enumerate(labels):
        yield _text("small" if i else "title", x + 10, y + 24 + _LINE * i, label)


def _box(kind: str, x: int, y: int, width: int, height: int) -> str:
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'


def _text(kind: str, x: float, y: float, text: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(text)}</text>'


def _arrow(path: str, *, is_change: bool = False) -> str:
    kind, head = ("changing", _HEADS[1]) if is_change else ("arrow", _HEADS[0])
    return f'<path class="{kind}" d="{path}" marker-end="url(#{head})"/>'


def _head(kind: str) -> str:
    shape = f'<path class="{kind}" d="M0 0L8 4L0 8Z"/>'
    return (
        f'<marker id="{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        f'markerUnits="userSpaceOnUse" orient="auto">{shape}</marker>'
    )
