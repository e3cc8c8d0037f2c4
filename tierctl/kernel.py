"""Loops over many events or records: compiled by Numba where a run has much to do, interpreted where not.

A function with the decorator `kernel` has one source and two forms. `prepare` decides which one all kernels
of this process use: compiled code needs most of a second before its first call, and interpreted loops take
about a tenth of a millisecond per event, so small commands never import Numba.

A kernel takes and returns integers, arrays of NumPy, and tuples of them. It computes with 64-bit integers
that never overflow, and turns what it reads from an array into one by `int64`, because Numba gives unsigned
bytes another type. It checks every position before it reads there: compiled code has bounds checks, which
raise IndexError, but they are for our mistakes, not for bad input. Constants of a module are compiled in.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, partial, update_wrapper
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from types import FunctionType
from typing import Any, Final, Generic, TypeVar, cast
from zipfile import ZipFile
from zlib import crc32

from tierctl.files import is_dir, is_file, why_below_others, why_folder_distrusted

LARGE: Final = 8_000
"""From this number of events or records on, a run is faster with compiled kernels."""

KEPT_S: Final = 7 * 86_400
"""How long the compiled code of another version is kept after its last use."""

_SLOW: Final = 200_000
"""From this number on, a run without Numba says why it is slow."""

COMPILING: Final = "compiling loops (once per installation): some seconds"
WITHOUT_NUMBA: Final = "this takes long without the package numba, which has compiled loops"
"""Why a run is slow."""

# Executors of Spark have the package in an archive whose path is relative to their first working directory.
_PACKAGE: Final = Path(__file__).absolute().parent
_PREFIX: Final = "kernels-"

Note = Callable[[str], None]
"""Receives COMPILING or WITHOUT_NUMBA, perhaps more than once."""

F = TypeVar("F", bound=Callable[..., Any])


class _Forms:
    """Which form the kernels of this process have, and where compiled code is kept."""

    def __init__(self) -> None:
        self.compiled = False
        self.announced = 0
        self.folder: Path | None = None
        self.note: Note | None = None


_forms = _Forms()
_compiling = Lock()


class Kernel(Generic[F]):
    """A function with two forms, callable; other compiled kernels call its compiled form."""

    def __init__(self, function: F, *, makes_arrays: bool, has_instructions: bool = False) -> None:
        self.function = function
        self.direct = FunctionType(function.__code__, {}, function.__name__, function.__defaults__)
        self._makes_arrays = makes_arrays
        self._has_instructions = has_instructions
        self._compiled: Any = None
        update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        return self.compiled(*arguments) if _forms.compiled else self.interpreted(*arguments)

    @cached_property
    def interpreted(self) -> Any:
        """Return the function, which calls other kernels interpreted, too: their form is not chosen again."""
        linked = [self]
        for kernel in linked:
            known, names = kernel.function.__globals__, kernel.direct.__globals__
            for name in known.keys() & kernel.function.__code__.co_names:
                used = known[name]
                names[name] = used.direct if isinstance(used, Kernel) else used
                if isinstance(used, Kernel) and used not in linked:
                    linked.append(used)
        return self.direct

    @property
    def compiled(self) -> Any:
        """Return the function as Numba's dispatcher, which compiles it for the types of its first call."""
        if self._compiled is None:
            with _compiling:
                if self._compiled is None:
                    self._compiled = _numba().dispatcher(
                        self.function, _forms.folder, makes_arrays=self._makes_arrays
                    )
        return self._compiled

    @property
    def _numba_type_(self) -> Any:
        """The type by which Numba compiles a call of this kernel in another one."""
        own = _numba().instructions(self.function.__name__) if self._has_instructions else None
        return _numba().type_of_call(self.compiled) if own is None else own


def _numba() -> Any:
    """Return the module that imports Numba."""
    from tierctl import compiled

    return compiled


def kernel(function: F) -> F:
    """Make a function a kernel."""
    return cast("F", Kernel(function, makes_arrays=True))


def plain_kernel(function: F) -> F:
    """Make a function a kernel that makes no array, and calls no kernel that returns a new one.

    Its compiled form counts no references to arrays, which takes three quarters of the time of small kernels.
    Numba refuses to compile it if it makes an array; a new array that it is given is never freed.
    """
    return cast("F", Kernel(function, makes_arrays=False))


def tiny_kernel(function: F) -> F:
    """Make a function a plain kernel for which `compiled` may have instructions of the processor.

    They take its place where another compiled kernel calls it.
    """
    return cast("F", Kernel(function, makes_arrays=False, has_instructions=True))


class _Int64(partial[int]):
    """`int` in interpreted kernels, a conversion to a signed integer of 64 bits in compiled ones."""

    @property
    def _numba_type_(self) -> Any:
        return _numba().INT64


int64: Final = _Int64(int)


@contextmanager
def reported(note: Note) -> Iterator[None]:
    """Tell `note` during the block if a run compiles kernels, or takes long because it can't."""
    before, _forms.note = _forms.note, note
    try:
        yield
    finally:
        _forms.note = before


def prepare(items: int) -> None:
    """Count `items` more events or records that this process is going to handle.

    From LARGE of them on, all together, kernels are compiled, if Numba is installed.
    """
    _forms.announced += items
    expect(_forms.announced)


def expect(items: int) -> None:
    """Announce that `items` events are going to be read, before the first of them is handled.

    They are not counted: what handles them calls `prepare`.
    """
    if _forms.compiled or items < LARGE:
        return
    if find_spec("numba") is not None:
        use_compiled()
    elif items >= _SLOW and _forms.note is not None:
        _forms.note(WITHOUT_NUMBA)


def use_compiled() -> None:
    """Use the compiled form of all kernels from now on."""
    if _forms.compiled:
        return
    _forms.folder = _cache_folder()
    is_kept = _forms.folder is not None and any(_forms.folder.iterdir())
    if not is_kept and _forms.note is not None:
        _forms.note(COMPILING)
    _forms.compiled = True


def use_interpreted() -> None:
    """Use the interpreted form of all kernels from now on, and forget what was announced (for tests)."""
    _forms.compiled, _forms.announced = False, 0


def is_compiled() -> bool:
    """Return whether kernels are called in their compiled form."""
    return _forms.compiled


def _cache_folder() -> Path | None:
    """Return a folder for compiled code that only this user and root may write; None if there is none.

    A file of compiled code is a pickle: who writes it runs code as this user. The name has a digest of the
    sources, because Numba does not notice that a kernel in another module changed. Executors of Spark have
    the package in an archive, and use the folder of their user.
    """
    name = _PREFIX + _digest()
    for parent in (_PACKAGE / "__pycache__", _user_cache()):
        if parent is None:
            continue
        with suppress(OSError):
            folder = parent / name
            if why_below_others(folder) is not None:
                continue
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_ours = not any(why_folder_distrusted(each) for each in (folder, parent, parent.parent))
            if is_ours and os.access(folder, os.W_OK | os.X_OK):
                _remove_others(folder)
                return folder
    return None


def _user_cache() -> Path | None:
    """Return this user's folder for files that can be made again; None without a home."""
    home, base = Path(os.environ.get("HOME", "")), Path(os.environ.get("XDG_CACHE_HOME", ""))
    folder = base if base.is_absolute() else home / ".cache"
    return folder / "tierctl" if folder.is_absolute() else None


_WITH_KERNELS: Final = ("kernel.py", "compiled.py", "wire/", "state/")
"""The modules, and the packages of modules, that may have kernels."""


def _digest() -> str:
    """Return a digest of the modules in _WITH_KERNELS, which are files or in an archive of the package.

    It is the same in both forms, and after changes of other modules.
    """
    archive = next((each for each in _PACKAGE.parents if is_file(each)), None)
    if archive is None:
        named = [_PACKAGE / each for each in _WITH_KERNELS]
        files = [path for each in named for path in (each.rglob("*.py") if is_dir(each) else [each])]
        found = [(path.relative_to(_PACKAGE).as_posix(), crc32(path.read_bytes())) for path in files]
    else:
        with ZipFile(archive) as opened:
            members = ((each.filename.partition("/")[2], each.CRC) for each in opened.infolist())
            found = [(name, crc) for name, crc in members if name.startswith(_WITH_KERNELS)]
    sources = sorted(each for each in found if each[0].endswith(".py"))
    return hashlib.sha256(repr(sources).encode()).hexdigest()[:16]


def _remove_others(folder: Path) -> None:
    """Remove the folders of other versions beside `folder` that no process has used for KEPT_S seconds.

    A process of another version that compiles its kernels at the same time would fail without its folder.
    """
    os.utime(folder)
    for other in folder.parent.glob(f"{_PREFIX}*"):
        # Another process may remove it meanwhile.
        with suppress(FileNotFoundError):
            if other != folder and time.time() - other.stat().st_mtime > KEPT_S:
                shutil.rmtree(other, ignore_errors=True)
