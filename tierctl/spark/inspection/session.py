"""The settings of a Spark session with their origins, and mistyped names among them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.find_spark_home import _find_spark_home

from tierctl.model.settings.secrets import shown
from tierctl.model.settings.stated import Origin, SettingSource, StatedSettings
from tierctl.model.uris import HIDDEN
from tierctl.spark.session import SparkSettings, jvm
from tierctl.spark.session.failures import failures, is_spark
from tierctl.spark.session.open import own_settings
from tierctl.spark.session.settings import is_credential
from tierctl.spark.session.shipping import is_connect
from tierctl.wire.files.properties import read_properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "spark.master"
_REGISTRY = "org.apache.spark.internal.config.ConfigEntry$"
_SIMILARITY = 0.9
"""Low enough for a wrong letter, and high enough that other names of the same group are no match."""


def session_settings(
    session: SparkSession, settings: SparkSettings, origins: Mapping[str, Origin]
) -> StatedSettings:
    """Return the settings of `session` that an option, spark-defaults.conf or tierctl states, by name.

    A setting that has another value in the session has the origin SPARK. Secrets are hidden.
    """
    stated = _stated(settings, str(session.conf.get(MASTER, "")), origins)
    values: dict[str, str] = {}
    found: dict[str, Origin] = {}
    for name in sorted(stated):
        value = session.conf.get(name, None)
        if value is None:
            continue
        values[name] = HIDDEN if is_credential(name, value) else shown(name, value)
        origin = stated.origin(name)
        is_own = value == stated[name] and origin is not None
        found[name] = origin if is_own and origin is not None else Origin(source=SettingSource.SPARK)
    return StatedSettings(values, found)


def _stated(settings: SparkSettings, master: str, origins: Mapping[str, Origin]) -> StatedSettings:
    by_tierctl = {MASTER: "local[*]"} | own_settings(settings.master or master or "local")
    stated = StatedSettings(by_tierctl, dict.fromkeys(by_tierctl, Origin(source=SettingSource.TIERCTL)))
    if not settings.is_connect:
        # The settings of tierctl have precedence, except the master.
        file = _defaults_file()
        stated = file | stated.only({name: name for name in stated if name != MASTER or name not in file})
    by_master = {} if settings.master is None or settings.is_connect else {MASTER: settings.master}
    for option, given in (("spark_conf", settings.conf), ("master", by_master)):
        origin = origins.get(option, Origin(source=SettingSource.OPTION))
        stated |= StatedSettings(given, dict.fromkeys(given, origin))
    return stated


def _defaults_file() -> StatedSettings:
    """Return the settings in spark-defaults.conf; empty without the file. Raise UsageError if unreadable."""
    folder = os.environ.get("SPARK_CONF_DIR")
    if folder is None:
        folder = str(Path(_find_spark_home()) / "conf")
    path = Path(folder) / "spark-defaults.conf"
    if not path.is_file():
        return StatedSettings({}, {})
    return read_properties(path, SettingSource.SPARK_DEFAULTS).stripped()


def mistyped_names(session: SparkSession, names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield each of `names` that Spark does not know and that resembles a known one, with that name.

    Spark accepts any name. Names without a similar one may belong to a cluster manager or to a library.
    """
    known = _known_names(session)
    for name in names:
        if name not in known:
            nearest = get_close_matches(name, known, n=1, cutoff=_SIMILARITY)
            if nearest:
                yield name, nearest[0]


def _known_names(session: SparkSession) -> set[str]:
    """Return the names in Spark's registry of settings, or, over Spark Connect, those of Spark SQL."""
    registry = None if is_connect(session) else _registry()
    if registry is not None:
        return set(registry)
    with failures(None):
        return {str(row["key"]) for row in session.sql("SET -v").collect()}


def _registry() -> Collection[str] | None:
    """Return the names in Spark's own registry; None if this version of Spark has another one."""
    running = jvm.running()
    if running is None:
        return None
    try:
        registry = running.gateway.jvm.java.lang.Class.forName(_REGISTRY).getField("MODULE$").get(None)
        return [str(each) for each in registry.knownConfigs().keySet()]
    except Exception as e:
        if not is_spark(e):
            raise
        return None
