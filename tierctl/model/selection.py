"""The choice of user partitions by --topic (names and globs), --partition (N or TOPIC-N) and --topic-id.

A command receives a `SelectionRequest`, reads the partitions that exist, and resolves the request once:

    selection = request.resolve(part.topic_id_partition for part in state)
    chosen = [part for part in state if part.topic_id_partition in selection]
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Self

from tierctl.errors import NotFoundError, UsageError
from tierctl.model.checked_values import natural_number
from tierctl.model.events import PARTITION_MAX, TopicIdPartition, TopicPartition, Uuid

SHOWN_MAX = 5
"""Names, or ranges of numbers, that a message shows."""

_GLOB_CHARACTERS = frozenset("*?[")
"""Characters of globs, which no legal topic name contains."""


def is_glob(text: str) -> bool:
    """Return whether a value of --topic is a glob such as `orders-*`, and not the name of one topic."""
    return not _GLOB_CHARACTERS.isdisjoint(text)


def admits_topic(texts: Collection[str], topic: str | None) -> bool:
    """Return whether `texts`, names and globs, admit the topic; without any they admit every topic."""
    if not texts or topic in texts:
        return True
    return topic is not None and any(is_glob(text) and fnmatchcase(topic, text) for text in texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Criteria:
    """Topic names, partitions and topic ids; an empty set admits every value.

    A partition is admitted if its number is in `partitions` or if it is in `named_partitions`.
    """

    topics: frozenset[str] = frozenset()
    partitions: frozenset[int] = frozenset()
    named_partitions: frozenset[TopicPartition] = frozenset()
    topic_ids: frozenset[Uuid] = frozenset()

    @property
    def narrows_partitions(self) -> bool:
        """Whether only some partitions of a topic are admitted."""
        return bool(self.partitions or self.named_partitions)

    @property
    def narrows(self) -> bool:
        """Whether any of the sets restricts the selection."""
        return bool(self.topics or self.topic_ids or self.narrows_partitions)

    def matches(self, topic: str | None, topic_id: str | None, partition: int | None) -> bool:
        """Return whether name, id and number all meet the criteria; None meets only an empty set."""
        return (
            (not self.topics or topic in self.topics)
            and self._admits_partition(topic, partition)
            and (not self.topic_ids or topic_id in self.topic_ids)
        )

    def may_select(self, partition: TopicPartition) -> bool:
        """Return whether a partition whose topic id is unknown meets the criteria on name and number."""
        return admits_topic(self.topics, partition.topic) and self._admits_partition(
            partition.topic, partition.partition
        )

    def _admits_partition(self, topic: str | None, partition: int | None) -> bool:
        if not self.narrows_partitions or partition in self.partitions:
            return True
        if not self.named_partitions or topic is None or partition is None:
            return False
        return TopicPartition(topic, partition) in self.named_partitions


class Selection(_Criteria):
    """The user partitions that a command works on; the result of `SelectionRequest.resolve`.

    Membership is decided by the criteria, so partitions that appear while a command runs are selected, too.
    `Selection()` selects every partition.
    """

    __slots__ = ()

    def __contains__(self, partition: TopicIdPartition) -> bool:
        return not self.narrows or self.matches(partition.topic, partition.topic_id, partition.partition)


class SelectionRequest(_Criteria):
    """The values of --topic, --partition and --topic-id, not yet compared with existing partitions.

    `topics` has names and globs. A glob stands for the topics that exist when the request is resolved.
    """

    __slots__ = ()

    @classmethod
    def of(
        cls,
        *,
        topics: Iterable[str] = (),
        partitions: Iterable[int | TopicPartition] = (),
        topic_ids: Iterable[str] = (),
    ) -> Self:
        """Return the request for these values; UsageError for a malformed id or a negative number.

        Named partitions without numbers and topics also restrict the topics to theirs. Raise UsageError for
        one whose topic is not among `topics`.
        """
        partitions, topics = frozenset(partitions), frozenset(topics)
        numbers = frozenset(each for each in partitions if isinstance(each, int))
        named = frozenset(each for each in partitions if isinstance(each, TopicPartition))
        if numbers and min(numbers) < 0:
            raise UsageError(f"partition {min(numbers)} is negative", hint="partition numbers begin with 0")
        left_out = sorted(str(each) for each in named if not admits_topic(topics, each.topic))
        if left_out:
            raise UsageError(
                f"--topic leaves out the topic of --partition {left_out[0]}", hint="leave --topic out"
            )
        return cls(
            topics=topics if topics or numbers else frozenset(each.topic for each in named),
            partitions=numbers,
            named_partitions=named,
            topic_ids=frozenset(Uuid.parse(text) for text in topic_ids),
        )

    @property
    def globs(self) -> frozenset[str]:
        """The globs among `topics`."""
        return frozenset(filter(is_glob, self.topics))

    @property
    def named_topics(self) -> frozenset[str]:
        """The names among `topics`, without the globs."""
        return self.topics - self.globs

    def resolve(self, known: Iterable[TopicIdPartition]) -> Selection:
        """Return the selection of this request, given every partition that exists in `known`.

        Each topic, id and number of the request must belong to at least one selected partition; otherwise
        raise NotFoundError, which names the value and similar known ones. `known` is read only if the request
        restricts the selection.
        """
        topics = self.named_topics
        if self.narrows:
            partitions = frozenset(known)
            self._require_known(partitions)
            of_topics = [p for p in partitions if self._admits_topic(p)]
            self._require_pairs(partitions, of_topics)
            self._require_named(of_topics)
            self._require_numbers(of_topics)
            if self.globs:
                topics |= {partition.topic for partition in of_topics}
        return Selection(
            topics=topics,
            partitions=self.partitions,
            named_partitions=self.named_partitions,
            topic_ids=self.topic_ids,
        )

    def unmatched_topics(self, names: Collection[str]) -> list[str]:
        """Return the names of `topics` that are not in `names`, and the globs that match none of them."""
        return sorted(text for text in self.topics if not any(admits_topic((text,), name) for name in names))

    def require_topics(self, names: Collection[str]) -> None:
        """Raise NotFoundError, with the nearest `names`, for a name or glob of `topics` that fits none."""
        for topic in self.unmatched_topics(names):
            near = get_close_matches(topic, sorted(names), n=SHOWN_MAX)
            similar = " with similar names" if near else ""
            what = "no topic matches" if is_glob(topic) else "unknown topic"
            raise NotFoundError(
                f'{what} "{topic}"', hint=f"known topics{similar}: {names_text(near or names)}"
            )

    def _admits_topic(self, partition: TopicIdPartition) -> bool:
        return admits_topic(self.topics, partition.topic) and (
            not self.topic_ids or partition.topic_id in self.topic_ids
        )

    def _require_known(self, known: Collection[TopicIdPartition]) -> None:
        """Raise NotFoundError for a topic name, a glob or a topic id that fits no known partition."""
        self.require_topics({partition.topic for partition in known})
        topics = {partition.topic_id: partition.topic for partition in known}
        for topic_id in sorted(self.topic_ids - topics.keys()):
            ids = {each for each, topic in topics.items() if not self.topics or topic in self.topics}
            near = get_close_matches(topic_id, sorted(ids), n=SHOWN_MAX, cutoff=0.8)
            shown = [f"{each} ({topics[Uuid(each)]})" for each in near or ids]
            raise NotFoundError(f"unknown topic id {topic_id}", hint=f"known topic ids: {names_text(shown)}")

    def _require_pairs(
        self, known: Collection[TopicIdPartition], of_topics: Collection[TopicIdPartition]
    ) -> None:
        """Raise NotFoundError for a topic id whose topic is not named, and for a name without a named id."""
        for topic_id in sorted(self.topic_ids - {partition.topic_id for partition in of_topics}):
            topic = next(partition.topic for partition in known if partition.topic_id == topic_id)
            raise NotFoundError(
                f'topic id {topic_id} belongs to topic "{topic}", which --topic leaves out',
                hint="a partition must match both --topic and --topic-id: leave one out",
            )
        for topic in self.unmatched_topics({partition.topic for partition in of_topics}):
            ids = {partition.topic_id for partition in known if admits_topic((topic,), partition.topic)}
            raise NotFoundError(
                f'topic "{topic}" has none of the topic ids {", ".join(sorted(self.topic_ids))}',
                hint=f'known topic ids of topic "{topic}": {names_text(ids)}',
            )

    def _require_named(self, of_topics: Collection[TopicIdPartition]) -> None:
        """Raise NotFoundError for a named partition that no chosen topic has, and for a topic without any."""
        known = {partition.topic_partition for partition in of_topics}
        for missing in sorted(self.named_partitions - known):
            SelectionRequest.of(topics=[missing.topic]).require_topics({each.topic for each in known})
            numbers = ranges_text(each.partition for each in known if each.topic == missing.topic)
            raise NotFoundError(
                f'topic "{missing.topic}" has no partition {missing.partition}',
                hint=f'known partitions of topic "{missing.topic}": {numbers}',
            )
        if self.named_partitions and not self.partitions:
            for topic in sorted(self.named_topics - {each.topic for each in self.named_partitions}):
                raise NotFoundError(f'no --partition is of topic "{topic}"', hint="leave that --topic out")

    def _require_numbers(self, of_topics: Collection[TopicIdPartition]) -> None:
        """Raise NotFoundError for a number that no chosen topic has, and for a topic with none of them.

        Of the topics that a glob stands for, only one must have the number.
        """
        numbers_of: dict[str, set[int]] = defaultdict(set)
        from_globs = set()
        for partition in of_topics:
            by_id = f"topic id {partition.topic_id}"
            title = f'topic "{partition.topic}"' if self.topics else by_id
            numbers_of[title].add(partition.partition)
            if self.globs and partition.topic not in self.topics:
                from_globs.add(title)
        is_one = len(numbers_of) == 1
        for title, numbers in sorted(numbers_of.items()) if self.topics or self.topic_ids else ():
            missing = self.partitions - numbers
            if missing and (is_one or (missing == self.partitions and title not in from_globs)):
                raise NotFoundError(
                    f"{title} has no partition {ranges_text(missing)}",
                    hint=f"known partitions of {title}: {ranges_text(numbers)}",
                )
        known = frozenset[int]().union(*numbers_of.values())
        if not self.partitions <= known:
            raise NotFoundError(
                f"no selected topic has a partition {ranges_text(self.partitions - known)}",
                hint=f"known partitions: {ranges_text(known)}",
            )


def parse_partition(text: str) -> int | TopicPartition:
    """Return the number or the partition that a value of --partition states; UsageError for another text."""
    number = natural_number(text, PARTITION_MAX)
    if number is not None:
        return number
    try:
        return TopicPartition.parse(text)
    except UsageError:
        raise UsageError(
            f"{text!r} is no partition", hint="expected a number, or TOPIC-PARTITION such as orders-0"
        ) from None


def named_partition(topic_name: str, number: int | None) -> dict[str, Any]:
    """Return the fields of a request for partition `number` of a topic, or for the one that a text names.

    UsageError for a text without a number, unless `number` is given.
    """
    if number is None:
        return {"partition": (TopicPartition.parse(topic_name),)}
    return {"topic": (topic_name,), "partition": (number,)}


def counted(number: int, noun: str) -> str:
    """Return `1 segment`, `3 segments` or `no segments`; `noun` may have its plural after a slash."""
    singular, _, plural = noun.partition("/")
    return f"{number or 'no'} {singular if number == 1 else plural or f'{singular}s'}"


def names_text(names: Collection[str]) -> str:
    """Return the first names in alphabetical order, and the number of the others; "none" without any."""
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return (", ".join(sorted(names)[:SHOWN_MAX]) or "none") + more


def ranges_text(numbers: Iterable[int]) -> str:
    """Return the numbers as `0-3, 7`, or "none"."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    shown = [f"{first}" if first == last else f"{first}-{last}" for first, last in ranges]
    return ", ".join(shown[:SHOWN_MAX]) + (", …" if len(shown) > SHOWN_MAX else "") or "none"
