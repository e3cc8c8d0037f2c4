"""The changes of --what-if, `TOPIC.SETTING=VALUE`: checked like in Kafka, and applied to settings."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Self

from tierctl.errors import UsageError
from tierctl.locallog.topic_configs import unknown_topic_setting
from tierctl.model import TopicConfig
from tierctl.model.configs import SettingValue
from tierctl.model.conflicts import Conflict, topic_conflicts
from tierctl.model.ids import is_legal_topic_name
from tierctl.model.selection import admits_topic, is_glob, names_text
from tierctl.model.settings import topic
from tierctl.model.settings.sizes import without_unit
from tierctl.model.settings.stated import SettingSource
from tierctl.model.settings.table import Setting

OPTION = "--what-if"
_SETTINGS: tuple[Setting[int], ...] = (
    topic.RETENTION_MS,
    topic.LOCAL_RETENTION_MS,
    topic.RETENTION_BYTES,
    topic.LOCAL_RETENTION_BYTES,
)
_ROWS = {row.name: row for row in _SETTINGS}
_EXPECTED = "expected TOPIC.SETTING=VALUE, as 'orders.retention.ms=7d' or '*.retention.bytes=50G'"


@dataclass(frozen=True, slots=True)
class Change:
    """One value of --what-if; `topic` is a name or a glob of names."""

    text: str
    topic: str
    setting: Setting[int]
    value: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the change that `text` states; UsageError for one that can't be calculated, or not made."""
        key, equals, value = (part.strip() for part in text.partition("="))
        name, setting = topic.split_key(key)
        if not equals or not value:
            raise UsageError(f"{OPTION} {text}: the value is missing", hint=_EXPECTED)
        if setting is None:
            raise unknown_topic_setting(OPTION, key)
        if setting not in _ROWS:
            raise UsageError(
                f"{OPTION} {text}: the effect of {setting} can't be calculated",
                hint=f"{OPTION} takes {', '.join(_ROWS)}",
            )
        if not is_glob(name) and not is_legal_topic_name(name):
            raise UsageError(f"{OPTION} {text}: {name!r} is no topic name", hint=_EXPECTED)
        row = _ROWS[setting]
        return cls(text, name, row, row.parse(without_unit(row.name, value), OPTION))


@dataclass(frozen=True, slots=True)
class Changes:
    """All values of --what-if; of two about the same setting of a topic, the later one counts."""

    changes: tuple[Change, ...]

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """Return the changes that `texts` state; raises as `Change.parse`."""
        return cls(tuple(map(Change.parse, texts)))

    def require_topics(self, known: Collection[str]) -> None:
        """Raise UsageError for a change that applies to no topic in `known`."""
        for change in self.changes:
            if any(admits_topic([change.topic], name) for name in known):
                continue
            near = [] if is_glob(change.topic) else get_close_matches(change.topic, sorted(known), n=1)
            raise UsageError(
                f"{OPTION} {change.text}: no selected topic has the name {change.topic}",
                hint=f'did you mean "{near[0]}"?' if near else f"topics: {names_text(sorted(known))}",
            )

    def of(self, name: str) -> dict[str, int]:
        """Return the changed settings of a topic."""
        return {
            change.setting.name: change.value for change in self.changes if admits_topic([change.topic], name)
        }

    def size_limit(self, name: str, retention_bytes: int) -> int:
        """Return the larger retention.bytes of a topic, before or after the change."""
        return max(retention_bytes, self.of(name).get(topic.RETENTION_BYTES.name, retention_bytes))

    def applied(self, configs: Mapping[str, TopicConfig], topics: Iterable[str]) -> dict[str, TopicConfig]:
        """Return `configs` with the changes of `topics`; UsageError for one that Kafka refuses."""
        changed = {name: self._applied(name, configs.get(name)) for name in sorted(topics) if self.of(name)}
        return {**configs, **changed}

    def _applied(self, name: str, config: TopicConfig | None) -> TopicConfig:
        values = self.of(name)
        before = config or TopicConfig()
        after = replace(
            before,
            retention_ms=values.get(topic.RETENTION_MS.name, before.retention_ms),
            retention_bytes=values.get(topic.RETENTION_BYTES.name, before.retention_bytes),
            stated={**before.stated, **{setting: _stated(setting, values[setting]) for setting in values}},
        )
        known = {conflict.kind for conflict in _refused(before)}
        for conflict in _refused(after):
            if conflict.kind not in known:
                raise UsageError(
                    f"{OPTION}: Kafka refuses this change of topic {name}: {conflict.found}",
                    hint=conflict.kind.row.fix,
                )
        return after


def _stated(setting: str, value: int) -> SettingValue:
    return SettingValue(name=setting, value=str(value), source=SettingSource.OPTION)


def _refused(config: TopicConfig) -> list[Conflict]:
    """Return why Kafka would refuse the stated settings; conflicts with unstated settings are unknown."""
    stated = {name: each.value for name, each in config.stated.items()}
    tiered = {**stated, topic.REMOTE_STORAGE_ENABLE.name: "true"}
    return [
        conflict
        for conflict in topic_conflicts(tiered, config.kafka_version)
        if conflict.kind.row.is_refused and tiered.keys() >= set(conflict.names)
    ]
