"""Check `--master` and `--spark-conf` before Spark is started."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from tierctl.errors import UsageError

CREDENTIALS = re.compile(
    r"secret|passw(or)?d|passphrase|token|credential(?!s?[._-]?provider)"
    r"|(access|account|private|api|sas|shared|encryption)[._-]?key",
    re.IGNORECASE,
)
_POINTS_TO_A_FILE = re.compile(r"(file|path|dir|location|store|provider|class|name|enabled)$", re.IGNORECASE)
# The values of these settings are names of Kubernetes secrets, not the secrets themselves.
_IS_NAMED_ONLY = re.compile(r"spark\.kubernetes\.(driver|executor)\.secret(s|KeyRef)\.")
_IN_A_VALUE = re.compile(
    r"(secret|passw(or)?d|token|access[._-]?key)\w*\s*[=:]|\bAKIA[0-9A-Z]{16}\b|://[^/@\s]+:[^/@\s]+@",
    re.IGNORECASE,
)
_HINT = (
    "give executors an instance role, a profile or their own environment; Spark shows and logs its settings"
)
SPECULATION = "spark.speculation"


def is_credential(name: str, value: str) -> bool:
    """Return True if a setting looks like a secret, and not like the path of one."""
    if value.lower() in {"", "true", "false"} or _IS_NAMED_ONLY.match(name):
        return False
    named = CREDENTIALS.search(name) and not _POINTS_TO_A_FILE.search(name)
    return bool(named or _IN_A_VALUE.search(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """The master and the settings of a session.

    Without `master`, Spark's configuration decides, and its default is local[*]. `changes_things` refuses
    speculation, because no side effect may run twice at a time. `verbose` prints Spark's logs. The
    application has the name of `command`.
    """

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    changes_things: bool = False
    verbose: bool = False
    command: str = ""

    @classmethod
    def of(
        cls,
        master: str | None,
        texts: Sequence[str],
        *,
        changes_things: bool = False,
        verbose: bool = False,
        command: str = "",
    ) -> Self:
        """Return the settings of `--master` and `--spark-conf` texts; raise UsageError for malformed ones."""
        pairs = [text.partition("=") for text in texts]
        for text, (name, equals, _) in zip(texts, pairs, strict=True):
            if not equals or not name.strip().startswith("spark."):
                shown = text if not equals else name
                raise UsageError(
                    f"--spark-conf {shown}: expected spark.KEY=VALUE", hint="as spark.executor.memory=4g"
                )
        conf = {name.strip(): value.strip() for name, _, value in pairs}
        return cls(master=master, conf=conf, changes_things=changes_things, verbose=verbose, command=command)

    def __post_init__(self) -> None:
        for name, value in self.conf.items():
            if is_credential(name, value):
                raise UsageError(
                    f"--spark-conf {name}: Spark settings must not contain credentials", hint=_HINT
                )
        if self.conf.get(SPECULATION, "").lower() == "true" and self.changes_things:
            raise UsageError(
                f"--spark-conf {SPECULATION}=true: no segment may be stored or deleted twice at a time",
                hint=f"leave {SPECULATION} out",
            )
        _check_master(self)

    @property
    def is_connect(self) -> bool:
        """Return True for a session of Spark Connect."""
        return self.master is not None and self.master.startswith("sc://")


def _check_master(settings: SparkSettings) -> None:
    master = settings.master
    if master is None:
        return
    if not re.match(r"local(\[|-cluster\[|$)|spark://|yarn$|k8s://|sc://", master):
        raise UsageError(
            f"--master {master!r}: no master of Spark",
            hint="local[N], spark://host:port, yarn, k8s://https://host:port, or sc://host:port",
        )
    if settings.is_connect:
        if re.search(r";\s*(token|user_id=[^;]*:)", master, re.IGNORECASE):
            raise UsageError(
                "--master sc://...: the address must not contain a token",
                hint="set SPARK_CONNECT_AUTHENTICATE_TOKEN in the environment",
            )
        for name in settings.conf:
            if not name.startswith("spark.sql."):
                raise UsageError(
                    f"--spark-conf {name}: a Spark Connect server has its own value",
                    hint="set it where the server is started; spark.sql.* can be set here",
                )
