"""The compiled form of kernels, by Numba; only `kernel` imports this module, when a run compiles its loops.

Some of the smallest kernels read numbers as Kafka writes them, or compute CRC-32C. The processor has
instructions for that, which other kernels get instead of a compiled loop. They check positions, too.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from llvmlite import binding, ir
from numba import config, njit
from numba.core import caching, cgutils, types
from numba.core.registry import cpu_target
from numba.extending import intrinsic

# Numba makes its settings when it is imported, and has few types.
_config: Any = config
_builders: Any = cgutils
_caching: Any = caching
_INT64: Final = ir.IntType(64)

INT64: Final = types.NumberClass(types.int64)
"""The type of a conversion to an integer of 64 bits."""


class _Place:
    """Where Numba keeps the compiled form of a function; the package may be a folder or in an archive.

    It has the methods of a cache locator of Numba. The folder is another one when the sources change.
    """

    folder: Path | None = None

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    @classmethod
    def from_function(cls, function: Callable[..., Any], _file: str) -> Self:
        """Return the place of a function."""
        return cls(function)

    def get_cache_path(self) -> str:
        """Return the folder."""
        return str(self.folder)

    def ensure_cache_path(self) -> None:
        """Do nothing: the folder was made and checked before kernels are compiled."""

    def get_source_stamp(self) -> str:
        """Return what is stored with compiled code, and must be the same when it is loaded."""
        return str(self.folder and self.folder.name)

    def get_disambiguator(self) -> str:
        """Return the part of the file name that tells functions of one name apart."""
        return f"{self._function.__module__}-{self._function.__code__.co_firstlineno}"


class _KeptCode(_caching.FunctionCache):  # type: ignore[misc]
    """The compiled forms of a function in its files; what these can't give is compiled in each run."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the form for a signature, or None; what is not readable is forgotten.

        A file that lost its end with the power may raise any error when it is unpickled.
        """
        try:
            return super().load_overload(sig, target_context)
        except Exception:
            try:
                self.flush()
            except OSError:
                self.disable()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the form for a signature, unless the disk refuses it."""
        with suppress(OSError):
            super().save_overload(sig, data)


def dispatcher(function: Callable[..., Any], folder: Path | None, *, makes_arrays: bool) -> Any:
    """Return the function as Numba's dispatcher, which compiles it for the types of its first call.

    Compiled code is kept in `folder`. A function that makes no arrays does without Numba's runtime (NRT),
    which makes them and counts references to them, and becomes a part of the kernels that call it: a call
    with the arrays of a table passes a hundred numbers, and takes longer than most kernels.
    """
    _Place.folder = folder
    before = _config.CACHE_LOCATOR_CLASSES
    _config.CACHE_LOCATOR_CLASSES = f"{__name__}.{_Place.__name__}"
    try:
        options: dict[str, Any] = {"boundscheck": True, "error_model": "numpy", "nogil": True}
        options |= {"_nrt": makes_arrays, "forceinline": not makes_arrays}
        made: Any = njit(**options)(function)
        if folder is not None:
            # What `enable_caching` of a dispatcher does, which has no parameter for it.
            made._cache = _KeptCode(function)  # noqa: SLF001
        return made
    finally:
        _config.CACHE_LOCATOR_CLASSES = before


def type_of_call(compiled: Any) -> Any:
    """Return the type by which Numba compiles a call of a dispatcher."""
    return types.Dispatcher(compiled)


def instructions(name: str) -> Any | None:
    """Return the type by which Numba compiles the instructions that do what the kernel `name` does.

    Return None if this processor has none.
    """
    found = _INSTRUCTIONS.get(name)
    if found is None:
        return None
    cpu_target.typing_context.refresh()
    return cpu_target.typing_context.resolve_value_type(found)


def _loaded(context: Any, builder: Any, kind: Any, at: Any, bits: int) -> Any:
    """Return the number of `bits` bits, lowest byte first, that an array of bytes of type `kind` has at `at`.

    `at` is a pair of the array and the index. Raise IndexError if not all of its bytes are inside the array.
    """
    data, index = at
    array = context.make_array(kind)(context, builder, data)
    last = builder.sub(array.nitems, _INT64(bits // 8))
    is_before, is_after = builder.icmp_signed("<", index, _INT64(0)), builder.icmp_signed(">", index, last)
    with _builders.if_unlikely(builder, builder.or_(is_before, is_after)):
        text = ("a position outside of the data",)
        context.call_conv.return_user_exc(builder, IndexError, text)
    place = builder.bitcast(builder.gep(array.data, [index]), ir.IntType(bits).as_pointer())
    return builder.load(place, align=1)


def _number_at(bits: int) -> Any:
    """Return instructions `(data, at)` that read a signed number, most significant byte first."""

    def typed(_typing: Any, data: Any, _at: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            found = builder.bswap(_loaded(context, builder, signature.args[0], arguments, bits))
            return found if bits == _INT64.width else builder.sext(found, _INT64)

        return types.int64(data, types.int64), emit

    return intrinsic(typed)


def _crc_after(bits: int, name: str) -> Any:
    """Return instructions `(crc, data, at)` that extend a CRC-32C by a number; `name` is LLVM's for them."""
    number = ir.IntType(bits)
    # The processor has them for a CRC in 64 bits with eight bytes, and in 32 bits with one byte.
    register = ir.IntType(max(bits, 32))

    def typed(_typing: Any, _crc: Any, data: Any, _at: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            found = _loaded(context, builder, signature.args[1], arguments[1:], bits)
            of_llvm = ir.FunctionType(register, [register, number])
            function = _builders.get_or_insert_function(builder.module, of_llvm, name)
            crc = arguments[0] if register == _INT64 else builder.trunc(arguments[0], register)
            extended = builder.call(function, [crc, found])
            return extended if register == _INT64 else builder.zext(extended, _INT64)

        return types.int64(types.int64, data, types.int64), emit

    return intrinsic(typed)


def _of_this_processor() -> dict[str, Any]:
    """Return the instructions that may be used, by the name of the kernel that they replace."""
    if sys.byteorder == "big":
        return {}
    found = {"int32_at": _number_at(32), "int64_at": _number_at(64)}
    # An operator who lets Numba compile for another processor may not want what only this one has.
    is_chosen = _config.CPU_NAME or _config.CPU_FEATURES
    if not is_chosen and binding.get_host_cpu_features().get("sse4.2"):
        found["crc_after_8"] = _crc_after(64, "llvm.x86.sse42.crc32.64.64")
        found["crc_after_1"] = _crc_after(8, "llvm.x86.sse42.crc32.32.8")
    return found


_INSTRUCTIONS: Final = _of_this_processor()
