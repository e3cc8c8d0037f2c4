"""Checks the CRCs of many small batches with one call per block of batches.

A CRC is linear: after a message and the message's own CRC, the register holds 0. In a copy of the block, all
bytes between the checked bytes of two batches are set to 0, and the stored CRC of each batch is written
directly after its checked bytes. The register then is 0 at the begin of each batch, and 0 after the block,
unless a batch is damaged. Damage of one batch is always found. Damage of several batches of a block stays
unnoticed with a probability of 2^-32, as damage of one batch does that is checked on its own.
"""

import numpy as np
import numpy.typing as npt

from tierctl.wire.batches.batch_heads import CRC_FROM, Buffer
from tierctl.wire.primitives import crc32c, crc32c_extend

Int64s = npt.NDArray[np.int64]

# A block and its copy should fit in the processor's cache.
_BLOCK_BYTES = 512 << 10
# For fewer batches in a block, one call per batch is as fast.
_BLOCK_BATCHES_MIN = 64
_ONES = 0xFFFFFFFF
_CRC_SIZE = 4


def count_before_wrong_crc(buf: Buffer, positions: Int64s, ends: Int64s, crcs: npt.NDArray[np.uint32]) -> int:
    """Return the number of batches before the first one with a wrong CRC.

    Batch i is `buf[positions[i]:ends[i]]` and has the stored CRC `crcs[i]`; each batch begins at the end of
    the batch before.
    """
    count = len(positions)
    if not count:
        return 0
    step = _BLOCK_BYTES * count // (int(ends[-1]) - int(positions[0]))
    if step < _BLOCK_BATCHES_MIN:
        return _one_by_one(buf, positions, ends, crcs)
    for first in range(0, count, step):
        block = slice(first, first + step)
        if not _all_right(buf, positions[block], int(ends[block][-1]), crcs[block]):
            return first + _one_by_one(buf, positions[block], ends[block], crcs[block])
    return count


def _all_right(buf: Buffer, positions: Int64s, end: int, crcs: npt.NDArray[np.uint32]) -> bool:
    """Return whether the CRCs of all batches from `positions[0]` to `end` are right."""
    start, size = int(positions[0]), end - int(positions[0])
    copy = np.empty(size + _CRC_SIZE, np.uint8)
    copy[:size] = np.frombuffer(buf, np.uint8, size, start)
    begins = np.lib.stride_tricks.sliding_window_view(copy, CRC_FROM + _CRC_SIZE, writeable=True)
    # The last step of CRC-32C complements the register.
    raw_crcs = (~crcs).astype("<u4").view(np.uint8).reshape(-1, _CRC_SIZE)
    changed = np.zeros((len(positions), begins.shape[1]), np.uint8)
    changed[1:, :_CRC_SIZE] = raw_crcs[:-1]
    # The first step sets the register to ones, which is the same as to complement the first checked bytes.
    changed[:, CRC_FROM:] = ~begins[positions - start, CRC_FROM:]
    begins[positions - start] = changed
    copy[size:] = raw_crcs[-1]
    # `extend` complements the register before and after.
    return crc32c_extend(_ONES, copy) == _ONES


def _one_by_one(buf: Buffer, positions: Int64s, ends: Int64s, crcs: npt.NDArray[np.uint32]) -> int:
    slices = map(slice, (positions + CRC_FROM).tolist(), ends.tolist())
    computed = np.fromiter(map(crc32c, map(buf.__getitem__, slices)), np.uint32, len(ends))
    wrong = computed != crcs
    return int(np.argmax(wrong)) if wrong.any() else len(ends)
