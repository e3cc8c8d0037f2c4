"""Problems in files of settings: the table of kinds, and one problem with its position.

`tierctl config check` reports every problem; another command ends with the first one that concerns it.
"""

from dataclasses import dataclass
from pathlib import Path

from tierctl.errors import UsageError
from tierctl.model.severity import Severity
from tierctl.row_enum import RowEnum


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    severity: Severity
    meaning: str


class ProblemKind(RowEnum):
    """The table: one member per kind of problem, with the severity of its worst case."""

    row: _Row

    UNREADABLE = _Row("unreadable", Severity.ERROR, "The file can't be read: nothing in it was checked.")
    MALFORMED = _Row("malformed", Severity.ERROR, "A line does not follow the format of the file.")
    UNKNOWN_SETTING = _Row(
        "unknown_setting",
        Severity.ERROR,
        "No setting has this name; a warning in a broker's file, which brokers read nevertheless.",
    )
    WRONG_VALUE = _Row("wrong_value", Severity.ERROR, "A value is of the wrong type, or out of its bounds.")
    CONTRADICTION = _Row("contradiction", Severity.ERROR, "Settings exclude each other.")
    REFUSED = _Row("refused", Severity.ERROR, "A command that reads the settings would end with this error.")
    DUPLICATE = _Row(
        "duplicate",
        Severity.ERROR,
        "A setting is stated twice; a warning in a properties file, where the last one counts.",
    )
    NOT_IN_VERSION = _Row(
        "not_in_version", Severity.WARNING, "Brokers of --kafka-version do not have the setting."
    )
    OPEN_PERMISSIONS = _Row(
        "open_permissions", Severity.WARNING, "Other users may read a file that holds secrets."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingProblem:
    """One problem: its position, what was expected there, what was found, and what to do.

    `file` is None for the environment, and `line` is None if the problem has no line. `setting` is the name
    of the setting or option. Neither text contains a secret. `severity` is the kind's if it is None.
    """

    kind: ProblemKind
    file: Path | None = None
    line: int | None = None
    setting: str | None = None
    message: str
    expected: str
    found: str
    hint: str
    of_severity: Severity | None = None

    @property
    def severity(self) -> Severity:
        """How serious the problem is."""
        return self.of_severity or self.kind.row.severity

    @property
    def error(self) -> UsageError:
        """The error that ends a command for which the problem matters."""
        where = "" if self.file is None else str(self.file) + (f", line {self.line}" if self.line else "")
        return UsageError(f"{where}: {self.message}" if where else self.message, hint=self.hint)


def did_you_mean(nearest: str | None, otherwise: str) -> str:
    """Return the hint that names the setting that was probably meant; `otherwise` without one."""
    return otherwise if nearest is None else f"did you mean {nearest!r}?"
