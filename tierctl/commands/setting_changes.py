"""Changed settings of topics whose effect is calculated and not made: --what-if and --assume."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Self

from tierctl.errors import UsageError
from tierctl.locallog.folders import unknown_topic_setting
from tierctl.model import TopicConfig
from tierctl.model.configs import SettingValue
from tierctl.model.conflicts import Conflict, topic_conflicts
from tierctl.model.ids import is_legal_topic_name
from tierctl.model.selection import admits_topic, is_glob, names_text
from tierctl.model.settings import topic
from tierctl.model.settings.scopes import Setting, SettingSource, without_unit

OF_TIER: tuple[Setting[int], ...] = (topic.RETENTION_MS, topic.RETENTION_BYTES)
OF_TIER_AND_DISKS: tuple[Setting[int], ...] = (
    topic.RETENTION_MS,
    topic.LOCAL_RETENTION_MS,
    topic.RETENTION_BYTES,
    topic.LOCAL_RETENTION_BYTES,
)
_EXPECTED = "expected TOPIC.SETTING=VALUE, as 'orders.retention.ms=7d' or '*.retention.bytes=50G'"


@dataclass(frozen=True, slots=True)
class Change:
    """One changed setting; `topic` is a name or a glob of names."""

    text: str
    topic: str
    setting: Setting[int]
    value: int

    @classmethod
    def parse(cls, text: str, option: str, settings: Collection[Setting[int]]) -> Self:
        """Return the change that `text` states; UsageError for one that can't be calculated, or not made."""
        rows = {row.name: row for row in settings}
        key, equals, value = (part.strip() for part in text.partition("="))
        name, setting = topic.split_key(key)
        if not equals or not value:
            raise UsageError(f"{option} {text}: the value is missing", hint=_EXPECTED)
        if setting is None:
            raise unknown_topic_setting(option, key)
        if setting not in rows:
            raise UsageError(
                f"{option} {text}: the effect of {setting} can't be calculated",
                hint=f"{option} takes {', '.join(rows)}",
            )
        if not is_glob(name) and not is_legal_topic_name(name):
            raise UsageError(f"{option} {text}: {name!r} is no topic name", hint=_EXPECTED)
        row = rows[setting]
        return cls(text, name, row, row.parse(without_unit(row.name, value), option))


@dataclass(frozen=True, slots=True)
class Changes:
    """All values of `option`; of two about the same setting of a topic, the later one counts."""

    option: str
    changes: tuple[Change, ...]

    @classmethod
    def parse(cls, texts: Iterable[str], option: str, settings: Collection[Setting[int]]) -> Self:
        """Return the changes of `settings` that the values of an option state; raises as `Change.parse`."""
        return cls(option, tuple(Change.parse(text, option, settings) for text in texts))

    def require_topics(self, known: Collection[str]) -> None:
        """Raise UsageError for a change that applies to no topic in `known`."""
        for change in self.changes:
            if any(admits_topic([change.topic], name) for name in known):
                continue
            near = [] if is_glob(change.topic) else get_close_matches(change.topic, sorted(known), n=1)
            raise UsageError(
                f"{self.option} {change.text}: no selected topic has the name {change.topic}",
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
                    f"{self.option}: Kafka refuses this change of topic {name}: {conflict.found}",
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
