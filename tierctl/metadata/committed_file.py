"""Read and replace a file of committed offsets, tierctl's own or that of a broker before Kafka 3.8."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tierctl.errors import CorruptInputError
from tierctl.files import broker_kept_out, exclusive, read_regular, replace_durably
from tierctl.metadata.state_dir.directory import LOCK
from tierctl.wire.files import committed_offsets
from tierctl.wire.files.committed_offsets import CommittedOffsets, OffsetsForm


def read_committed(path: Path) -> CommittedOffsets:
    """Decode a file of committed offsets; raise CorruptInputError if it is damaged, or OSError."""
    try:
        return committed_offsets.read(read_regular(path))
    except CorruptInputError as error:
        raise error.within(str(path)) from None


def write_committed(path: Path, offsets: Mapping[int, int]) -> None:
    """Replace the file in its own form, an unreadable one in Kafka's form; the former stays as .bak.

    Raise SafetyRefusal if a broker runs on its folder, LockedError if another tierctl works there.
    """
    with broker_kept_out(path.parent), exclusive(path.parent, LOCK):
        form = OffsetsForm.CHECKPOINT
        with suppress(CorruptInputError):
            form = read_committed(path).form
        replace_durably(path, committed_offsets.write(offsets, form), backup=True)
