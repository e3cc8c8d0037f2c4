"""Sizes as a person reads them."""

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def bytes_text(size_bytes: int) -> str:
    """Return a size in binary units with one decimal: 512 B, 1.5 KiB, 12.4 GiB."""
    size, unit = float(size_bytes), "B"
    for larger in _UNITS:
        # Rounded to one decimal, 1023.95 KiB would be 1024.0 KiB.
        if abs(size) < (1023.95 if unit != "B" else 1024):
            break
        size, unit = size / 1024, larger
    return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"
