"""Colours of words at a terminal, by their meaning."""

import os
from enum import StrEnum
from typing import TextIO


class Colour(StrEnum):
    """The parameter of the terminal's escape sequence for a colour or an attribute (ECMA-48, SGR)."""

    BOLD = "1"
    DIM = "2"
    RED = "31"
    GREEN = "32"
    YELLOW = "33"


OF_WORDS = (
    dict.fromkeys(
        ("error", "problem", "failed", "corrupt", "missing", "delete_segment", "delete_partition"), Colour.RED
    )
    | dict.fromkeys(("warning", "unsupported", "dropped", "pending", "mark_partition"), Colour.YELLOW)
    | dict.fromkeys(("lower", "raise", "drop", "start_over", "compact"), Colour.YELLOW)
    | dict.fromkeys(("COPY_SEGMENT_STARTED", "DELETE_SEGMENT_STARTED"), Colour.YELLOW)
    | dict.fromkeys(("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED"), Colour.YELLOW)
    | dict.fromkeys(("done", "ok", "copy_segment", "COPY_SEGMENT_FINISHED"), Colour.GREEN)
    | dict.fromkeys(
        ("info", "keep", "not_checked", "DELETE_SEGMENT_FINISHED", "DELETE_PARTITION_FINISHED", "Header"),
        Colour.DIM,
    )
)
"""The colours of words in columns of `Kind.WORD`: red needs attention, yellow is not final, green is."""


def shows_colours(stream: TextIO) -> bool:
    """Return whether `stream` is a terminal with colours; NO_COLOR and TERM=dumb switch them off."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(text: str, colour: Colour | None) -> str:
    """Return `text` within the escape sequences of the colour."""
    return f"\033[{colour}m{text}\033[0m" if colour and text else text
