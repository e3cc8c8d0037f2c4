"""A whole flat file, read entry by entry."""

from typing import NamedTuple

from tierctl.errors import CorruptInputError
from tierctl.model.events import StoredRecord
from tierctl.wire.files import flatfile
from tierctl.wire.files.flatfile import FlatEntry, FlatFileHeader


class FlatFile(NamedTuple):
    """The entries of a file up to byte `end`, and the error of the bytes after it, if any."""

    header: FlatFileHeader
    entries: list[FlatEntry]
    end: int
    torn: CorruptInputError | None

    @property
    def records(self) -> list[StoredRecord]:
        return [entry.record for entry in self.entries if entry.record is not None]

    @property
    def damaged(self) -> list[CorruptInputError]:
        errors = [entry.error for entry in self.entries if entry.error is not None]
        return [*errors, self.torn] if self.torn else errors


def read(data: bytes) -> FlatFile:
    header, end = flatfile.read_header(data)
    entries: list[FlatEntry] = []
    try:
        for entry in flatfile.iter_entries(data, end):
            entries.append(entry)
            end = entry.end
    except CorruptInputError as error:
        return FlatFile(header, entries, end, error)
    return FlatFile(header, entries, end, None)
