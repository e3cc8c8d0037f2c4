"""Escape text from metadata before it is shown: a terminal executes the control characters it receives."""

import re

# C0, DEL, C1, surrogates, and the characters that reorder or hide text.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


_PIECE_CHARS = 1 << 16
"""A longer text is escaped in pieces: a match for each of its characters would take too long."""


def _escaped(match: re.Match[str]) -> str:
    char = match.group()
    code = ord(char)
    return _SHORT.get(char) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


class _Escapes(dict[int, str]):
    """The text for each character that was asked for."""

    def __missing__(self, code: int) -> str:
        self[code] = text = _UNSAFE.sub(_escaped, chr(code))
        return text


def printable(text: str) -> str:
    """Return `text` on one line, with each control, format and surrogate character as an escape sequence."""
    if len(text) <= _PIECE_CHARS:
        return _UNSAFE.sub(_escaped, text)
    pieces = (text[at : at + _PIECE_CHARS] for at in range(0, len(text), _PIECE_CHARS))
    escapes = _Escapes()
    return "".join(piece.translate(escapes) if _UNSAFE.search(piece) else piece for piece in pieces)
