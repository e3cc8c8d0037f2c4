"""Escape text from metadata before it is shown: a terminal executes the control characters it receives."""

import re
from collections.abc import Iterator

# C0, DEL, C1, surrogates, and the characters that reorder or hide text.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

PIECE_CHARS = 1 << 16
"""A longer text is escaped and written in pieces: its copies would take many times its memory."""


class _Escapes(dict[int, str]):
    """The text for each character that was asked for."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        self[code] = text = _escaped(char) if _UNSAFE.match(char) else char
        return text


def _escaped(char: str) -> str:
    code = ord(char)
    return _SHORT.get(char) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def printable(text: str) -> str:
    """Return `text` on one line, with each control, format and surrogate character as an escape sequence."""
    # What Python calls printable has none of these characters; most texts are.
    return text if text.isprintable() else "".join(printable_pieces(text))


def printable_pieces(text: str) -> Iterator[str]:
    """Yield the text that `printable` returns, in pieces of up to PIECE_CHARS characters of `text`."""
    escapes = _Escapes()
    for at in range(0, len(text), PIECE_CHARS):
        piece = text[at : at + PIECE_CHARS]
        if _UNSAFE.search(piece) is None:
            yield piece
        elif piece.isascii():
            # Five times as fast; a backslash, which this codec doubles, stays as it is.
            yield piece.encode("unicode_escape").decode("ascii").replace("\\\\", "\\")
        else:
            yield piece.translate(escapes)
