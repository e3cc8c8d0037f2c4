"""The kinds of segments in lanes; of several kinds in one bin, the last one in this order is shown."""

from dataclasses import dataclass

from tierctl.row_enum import RowEnum


@dataclass(frozen=True, slots=True)
class _Row:
    """The class in the style sheet, the letter that lanes show, and the meaning."""

    name: str
    letter: str
    meaning: str
    is_local: bool = False


class SegmentKind(RowEnum):
    """The kinds of segments: a state together with the decision about the segment."""

    row: _Row

    CURRENT = _Row("current", "", "on the lineage of the log")
    UNDECIDED = _Row("undecided", "?", "nothing decides whether it is on the lineage")
    HELD = _Row("held", "H", "retention can't reach it: a timestamp or a hole stops it")
    DUE = _Row("due", "E", "expired: brokers may delete it now")
    OFF_LINEAGE = _Row("diverged", "X", "off the lineage: a former leader copied it")
    COPYING = _Row("copying", "C", "COPY_SEGMENT_STARTED: its copy is not finished")
    DELETING = _Row("deleting", "D", "DELETE_SEGMENT_STARTED: its deletion is not finished")
    GONE = _Row("gone", "G", "of a partition or topic that was deleted")
    COPIED = _Row("copied", "", "also in the tier", is_local=True)
    LOCAL = _Row("local", "-", "not in the tier, of a topic that is not known to be tiered", is_local=True)
    ACTIVE = _Row("active", "A", "the active segment", is_local=True)
    NEXT = _Row("next", "N", "copied next", is_local=True)
    WAITING = _Row("waiting", "W", "its copy waits for a transaction or a limit", is_local=True)
    LEADER = _Row("leader", "L", "the leader's log, whose segments are not known", is_local=True)

    @property
    def code(self) -> int:
        """The number of the kind in the columns of lanes."""
        return _CODES[self]


_CODES = {kind: code for code, kind in enumerate(SegmentKind)}
