"""The fields of requests that are options: how each is declared, and whether its value has its type.

The command line makes values of the right type of what an operator writes. A caller of the Python API writes
the values, and no type checker need have seen them.
"""

import inspect
import sys
from collections.abc import Iterable, Sequence
from dataclasses import fields
from enum import Enum
from functools import cache
from numbers import Integral, Real
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from typer.models import ParameterInfo

from tierctl.errors import UsageError


def declaring(kind: type, name: str) -> type:
    """Return the class that declares a field: the first one that annotates it."""
    return next(each for each in kind.__mro__ if name in inspect.get_annotations(each))


def annotation_of(kind: type, name: str) -> Any:
    """Return the annotation of a field; it is text in modules with postponed annotations."""
    declares = declaring(kind, name)
    found = inspect.get_annotations(declares)[name]
    if isinstance(found, str):
        try:
            return eval(found, vars(sys.modules[declares.__module__]))
        except NameError:  # Imported for type checkers only: no option.
            return None
    return found


def info_of(annotation: Any) -> ParameterInfo | None:
    """Return Typer's description of an option or argument in its annotation; None for another parameter."""
    return next((each for each in get_args(annotation) if isinstance(each, ParameterInfo)), None)


def fit_fields(request: Any) -> None:
    """Make the values of a request's options values of the types that its fields state.

    A text stands for the value that the command line makes of it, and a path for its text. Raise UsageError
    for a value of another type, or out of the bounds of its option: code that compares values with those of
    the right type would ignore it, and work on partitions or records that were not selected.
    """
    own: type = type(request)
    for name, (kind, info) in _options(own).items():
        value = getattr(request, name)
        try:
            object.__setattr__(request, name, _fitted(value, kind, info))
        except (TypeError, ValueError) as e:
            raise UsageError(
                f"{own.__name__}: {name} can't be {value!r}", hint=f"expected {_named(kind, info)}"
            ) from e


@cache
def _options(kind: type) -> dict[str, tuple[Any, ParameterInfo]]:
    """Return the type, and Typer's description, of each field of a request that is an option."""
    found = {each.name: annotation_of(kind, each.name) for each in fields(kind)}
    infos = {name: info_of(annotation) for name, annotation in found.items()}
    return {name: (get_args(found[name])[0], info) for name, info in infos.items() if info is not None}


def _fitted(value: Any, kind: Any, info: ParameterInfo) -> Any:
    """Return `value` as one of type `kind`; raise TypeError or ValueError if it is no such value."""
    if get_origin(kind) is Sequence:
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise TypeError
        return tuple(_fitted(each, get_args(kind)[0], info) for each in value)
    kinds = _alternatives(kind)
    is_bool = isinstance(value, bool)
    if isinstance(value, str) and str not in kinds:
        if info.parser is not None:
            return info.parser(value)
        value = next((each(value) for each in kinds if issubclass(each, Enum | PurePath)), value)
    elif isinstance(value, PurePath) and str in kinds:
        value = str(value)
    elif isinstance(value, Integral) and int in kinds and not is_bool:
        value = int(value)  # Other packages have numbers of their own.
    elif isinstance(value, Real) and float in kinds and not is_bool:
        value = float(value)
    if not isinstance(value, kinds) or (is_bool and bool not in kinds):
        raise TypeError
    if isinstance(value, int | float) and not _is_within(value, info):
        raise ValueError
    return value


def _is_within(value: float, info: ParameterInfo) -> bool:
    """Return whether a number is within the bounds of an option."""
    return (info.min is None or info.min <= value) and (info.max is None or value <= info.max)


def _alternatives(kind: Any) -> tuple[type, ...]:
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def _named(kind: Any, info: ParameterInfo) -> str:
    """Return a description of the type of an option for a message."""
    if get_origin(kind) is Sequence:
        return f"a sequence of {_named(get_args(kind)[0], info)}"
    names: list[str] = []
    for each in _alternatives(kind):
        names += (
            [m.value for m in each]
            if issubclass(each, Enum)
            else ["None" if each is NoneType else each.__name__]
        )
    bounds = [] if info.min is None else [f"from {info.min}"]
    bounds += [] if info.max is None else [f"to {info.max}"]
    return " ".join([" or ".join(names), *bounds])
