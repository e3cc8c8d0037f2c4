"""The texts of `.option(...)` of a data source, which Spark gives as they were written."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

from tierctl.errors import UsageError
from tierctl.model.times import parse_time_ms


@dataclass(frozen=True, slots=True)
class Given:
    """The options of one load or stream: their texts by name, in lower case.

    The methods return the value of an option, None or nothing without it; they raise UsageError for a text
    that is no such value.
    """

    texts: Mapping[str, str]

    @classmethod
    def of(cls, source: str, options: Mapping[str, str], names: Collection[str]) -> Self:
        """Return the options of the data source `source`; raise UsageError for one that is not in `names`."""
        texts = {name.lower(): text for name, text in options.items()}
        if unknown := sorted(texts.keys() - set(names)):
            raise UsageError(
                f"{source} has no option {', '.join(unknown)}", hint=f"it has {', '.join(sorted(names))}"
            )
        return cls(texts)

    def text(self, name: str) -> str | None:
        """Return the text as it was written."""
        return self.texts.get(name)

    def required(self, name: str, hint: str) -> str:
        """Return a text that is not empty; raise UsageError with `hint` without it."""
        text = self.texts.get(name)
        if not text:
            raise UsageError(f"option {name} is missing", hint=hint)
        return text

    def several(self, name: str) -> list[str]:
        """Return the texts between commas, at least one: an empty option may not mean everything."""
        if name not in self.texts:
            return []
        found = [part.strip() for part in self.texts[name].split(",") if part.strip()]
        if not found:
            raise UsageError(
                f"option {name} is empty", hint="leave it out, or give values with commas between"
            )
        return found

    def numbers(self, name: str) -> list[int]:
        """Return the numbers of 0 or more between commas."""
        texts = self.several(name)
        if not all(map(_is_number, texts)):
            raise UsageError(f"option {name}: {self.texts[name]!r}", hint="numbers, commas between")
        return list(map(int, texts))

    def count(self, name: str, *, least: int = 1) -> int | None:
        """Return a number of `least` or more."""
        text = self.texts.get(name)
        if text is None:
            return None
        if not _is_number(text) or int(text) < least:
            raise UsageError(f"option {name}: {text!r}", hint=f"a number of {least} or more")
        return int(text)

    def path(self, name: str) -> Path | None:
        """Return an absolute path: executors have other working directories."""
        text = self.texts.get(name)
        return Path(text).absolute() if text else None

    def time_ms(self, name: str) -> int | None:
        """Return a time in milliseconds."""
        text = self.texts.get(name)
        return None if text is None else parse_time_ms(text)

    def one_of(self, name: str, known: type[StrEnum] | Iterable[str]) -> str | None:
        """Return the one of `known` that is given, in lower or upper case."""
        text = self.texts.get(name)
        if text is None:
            return None
        words = list(map(str, known))
        found = next((word for word in words if word.lower() == text.lower()), None)
        if found is None:
            raise UsageError(f"option {name}: {text!r}", hint=f"one of {', '.join(words)}")
        return found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
