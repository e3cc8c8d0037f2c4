"""Read a properties file to its end, with every problem that does not depend on its kind."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tierctl.errors import UsageError
from tierctl.files import open_regular, read_regular
from tierctl.model.configs import BrokerDefaults
from tierctl.model.settings.problems import ProblemKind, SettingProblem
from tierctl.model.settings.secrets import holds_secret, shown
from tierctl.model.settings.stated import Origin, SettingSource, StatedSettings
from tierctl.model.settings.table import Setting
from tierctl.model.severity import Severity
from tierctl.wire.files.properties import MalformedLine, Property, parse_properties


@dataclass(slots=True)
class PropertiesFile:
    """The settings in a file, the last of several with the same name, and the problems of its lines.

    A file that can't be read has no settings and one problem, of the kind UNREADABLE.
    """

    path: Path
    settings: StatedSettings
    problems: list[SettingProblem] = field(default_factory=list)

    def problem(
        self, kind: ProblemKind, key: str, message: str, *, expected: str, found: str, hint: str,
        severity: Severity | None = None,
    ) -> SettingProblem:  # fmt: skip
        """Return a problem with the line that states `key`."""
        origin = self.settings.origin(key)
        return SettingProblem(
            kind=kind,
            file=self.path,
            line=origin.line if origin else None,
            setting=key,
            message=message,
            expected=expected,
            found=found,
            hint=hint,
            of_severity=severity,
        )

    def wrong_value(self, key: str, row: Setting[object]) -> SettingProblem | None:
        """Return the problem of the value of `key`, a setting of `row`; None if Kafka accepts it."""
        text = self.settings[key]
        try:
            row.parse(text)
        except UsageError as e:
            return self.problem(
                ProblemKind.WRONG_VALUE,
                key,
                e.message if key == row.name else e.message.replace(row.name, key, 1),
                expected=row.values,
                found=shown(key, repr(text)),
                hint=f"write {row.values}"
                + ("" if row.default is None else f"; without the line it is {row.default}"),
            )
        return None

    def not_in_version(
        self, key: str, row: Setting[object], brokers: BrokerDefaults
    ) -> SettingProblem | None:
        """Return the problem of a setting that the brokers' version does not have; None if it has it."""
        if brokers.version.includes(row.since, row.until):
            return None
        versions = f"since {row.since}" if row.until is None else f"until {row.until}"
        if not row.since[:1].isdigit():
            versions = "in no release"
        return self.problem(
            ProblemKind.NOT_IN_VERSION,
            key,
            f"{key}: Kafka {brokers.version} does not have it, it exists {versions}",
            expected=f"settings of Kafka {brokers.version}",
            found=key,
            hint="remove it, or state the brokers' version with --kafka-version",
        )


def read_to_end(path: Path, source: SettingSource) -> PropertiesFile:
    """Read the properties file `path`, a file of the kind `source`, to its end."""
    try:
        data = read_regular(path)
        mode = path.stat().st_mode
    except OSError as e:
        return PropertiesFile(path, StatedSettings({}, {}), [unreadable(path, e)])
    problems: list[SettingProblem] = []
    properties = parse_properties(data, lambda line: problems.append(_malformed(path, line)))
    found = PropertiesFile(
        path,
        StatedSettings(
            {each.key: each.value for each in properties},
            {each.key: Origin(source=source, file=path, line=each.line) for each in properties},
        ).stripped(),
        problems,
    )
    problems.extend(_duplicates(path, properties))
    if any(holds_secret(name, value) for name, value in found.settings.items()):
        problems.extend(open_permissions(path, mode, "passwords"))
    return found


def unreadable(path: Path, error: OSError, *, named_by: SettingProblem | None = None) -> SettingProblem:
    """Return the problem of a file that can't be read; `named_by` has the line that names the file."""
    why = error.strerror or str(error)
    return SettingProblem(
        kind=ProblemKind.UNREADABLE,
        file=path if named_by is None else named_by.file,
        line=None if named_by is None else named_by.line,
        setting=None if named_by is None else named_by.setting,
        message=f"{path} can't be read: {why}" if named_by else f"can't be read: {why}",
        expected="a file that this user may read",
        found=why,
        hint="correct the path, or run the check as a user who may read the file (sudo -u kafka)",
    )


def open_permissions(path: Path, mode: int, what: str) -> Iterator[SettingProblem]:
    """Yield a problem if users other than the owner and the group may read or change a file with `what`."""
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        yield SettingProblem(
            kind=ProblemKind.OPEN_PERMISSIONS,
            file=path,
            message=f"has {what}, and every user of this machine may "
            f"{'change' if mode & stat.S_IWOTH else 'read'} it",
            expected="mode 0600 or 0640",
            found=f"mode {stat.S_IMODE(mode):04o}",
            hint=f"chmod o-rwx {path}",
        )


def check_secret_file(path: Path, named_by: SettingProblem, what: str) -> Iterator[SettingProblem]:
    """Yield the problems of a file of keys that a setting names; `named_by` has the place of the setting."""
    try:
        with os.fdopen(open_regular(path), "rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
    except OSError as e:
        yield unreadable(path, e, named_by=named_by)
        return
    yield from open_permissions(path, mode, what)


def _malformed(path: Path, line: MalformedLine) -> SettingProblem:
    return SettingProblem(
        kind=ProblemKind.MALFORMED,
        file=path,
        line=line.line,
        message=f"expected {line.expected}",
        expected=line.expected,
        # The line may contain a password.
        found="another escape",
        hint="write a literal backslash twice",
    )


def _duplicates(path: Path, properties: list[Property]) -> Iterator[SettingProblem]:
    first: dict[str, Property] = {}
    for each in properties:
        before = first.setdefault(each.key, each)
        if before is not each:
            yield SettingProblem(
                kind=ProblemKind.DUPLICATE,
                file=path,
                line=each.line,
                setting=each.key,
                message=f"{each.key} is stated twice: line {before.line} has no effect",
                expected="one line for each setting",
                found=f"lines {before.line} and {each.line}"
                + (", with the same value" if before.value == each.value else ", with different values"),
                hint="remove the wrong line",
                of_severity=Severity.WARNING,
            )
            first[each.key] = each
