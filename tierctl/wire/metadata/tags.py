"""The tagged fields of flexible records (KIP-482), known and unknown."""

from collections.abc import Mapping
from typing import Any

from tierctl.errors import CorruptInputError
from tierctl.wire.metadata.schema import Flag
from tierctl.wire.primitives import read_uvarint, take, write_uvarint

Values = dict[str, Any]


class Tags:
    """The step for the tagged fields at the end of a flexible struct; `place` is the path of the struct."""

    def __init__(self, flags: tuple[Flag, ...], place: str) -> None:
        self._flags = flags
        self._place = place

    def decode(self, buf: bytes, pos: int, values: Values, _trace: object) -> int:
        return read_tags(buf, pos, self._flags, self._place, values)

    def encode(self, values: Mapping[str, Any], out: bytearray, _trace: object) -> None:
        write_tags(self._flags, self._place, values, out)


def read_tags(buf: bytes, pos: int, flags: tuple[Flag, ...], place: str, values: Values) -> int:
    """Read a section of tagged fields into `values`; return the next position."""
    for flag in flags:
        values[flag.name] = False
    if pos < len(buf) and buf[pos] == 0:
        return pos + 1
    count, at = read_uvarint(buf, pos, "number of tagged fields")
    kept: list[tuple[int, bytes]] = []
    previous = -1
    for _ in range(count):
        tag, raw, end = _read_tag(buf, at, previous)
        flag_here = next((f for f in flags if f.tag == tag), None)
        if flag_here is not None:
            values[flag_here.name] = _flag_value(flag_here, raw, at)
        # A default value that was written explicitly is kept too, so that it is written again.
        if flag_here is None or raw != b"\x01":
            kept.append((tag, raw))
        previous, at = tag, end
    if kept:
        _keep(values, place, tuple(kept))
    return at


def _read_tag(buf: bytes, pos: int, previous: int) -> tuple[int, bytes, int]:
    tag, at = read_uvarint(buf, pos, "tag")
    if tag <= previous:
        raise CorruptInputError("tag", expected=f"a tag above {previous}", found=str(tag), at=pos)
    size, at = read_uvarint(buf, at, f"size of tag {tag}")
    raw, end = take(buf, at, size, f"tag {tag}")
    return tag, raw, end


def _flag_value(flag: Flag, raw: bytes, at: int) -> bool:
    if len(raw) != 1:
        raise CorruptInputError(flag.name, expected="1 byte", found=f"{len(raw)} bytes", at=at)
    return raw != b"\x00"


def _keep(values: Values, place: str, tags: tuple[tuple[int, bytes], ...]) -> None:
    if place:
        values["nested_tags"] = (*values.get("nested_tags", ()), (place, tags))
    else:
        values["unknown_tags"] = tags


def write_tags(flags: tuple[Flag, ...], place: str, values: Mapping[str, Any], out: bytearray) -> None:
    """Append the section of tagged fields: flags that are set, and unknown tags kept by `read_tags`."""
    kept = dict(dict(values["nested_tags"]).get(place, ()) if place else values["unknown_tags"])
    for flag in flags:
        value = values[flag.name]
        raw = kept.get(flag.tag)
        if raw is not None and (raw != b"\x00") == value:
            continue
        kept.pop(flag.tag, None)
        if value:
            kept[flag.tag] = b"\x01"
    out += write_uvarint(len(kept))
    for tag in sorted(kept):
        out += write_uvarint(tag) + write_uvarint(len(kept[tag])) + kept[tag]
