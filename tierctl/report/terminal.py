"""Escape text from metadata before it is shown: a terminal executes the control characters it receives."""

import re

# C0, DEL, C1, surrogates, and the characters that reorder or hide text.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escaped(match: re.Match[str]) -> str:
    char = match.group()
    code = ord(char)
    return _SHORT.get(char) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def printable(text: str) -> str:
    """Return `text` on one line, with each control, format and surrogate character as an escape sequence."""
    return _UNSAFE.sub(_escaped, text)
