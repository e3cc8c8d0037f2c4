"""Numbers in texts from outside: settings, options, names of files."""

NUMBER_MAX = (1 << 63) - 1
"""The largest number of Kafka's own files and records."""
PORT_MAX = (1 << 16) - 1


def natural_number(text: str, most: int = NUMBER_MAX) -> int | None:
    """Return the number from 0 to `most` that ASCII digits state; None for any other text.

    Python takes other scripts' digits for digits, and refuses to convert thousands of them.
    """
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0")
    if len(digits) > len(str(most)):
        return None
    number = int(digits or "0")
    return number if number <= most else None
