"""Plans as files: any edit is detected, however small."""

import contextlib
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tierctl.commands.sweep import Sweep
from tierctl.errors import SafetyRefusal, UsageError
from tierctl.model import ClusterIdentity, TopicConfig, Uuid
from tierctl.plan.expiry import plan_retention
from tierctl.plan.saved import PlanIdentity, PlanPlace, SavedPlan, check_place, digest_of

from tests.plan.tier import NOW_MS, TOPIC_ID, local_log, segment, tier

SEGMENTS = (segment(0, 0, 99), segment(1, 100, 199), segment(2, 200, 299))
PLACE = PlanPlace(
    metadata="/metadata",
    cluster=ClusterIdentity(cluster_id="abc", metadata_topic_id=Uuid("h0muvYe_TpOMWkoQBim7pw")),
    tier="s3://bucket/tier",
    layout="aiven",
)
JSON_VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text())


def saved() -> SavedPlan:
    plan = plan_retention(
        tier(*SEGMENTS), [local_log([0], 500)], {"orders": TopicConfig(retention_ms=1)}, now_ms=NOW_MS + 10
    )
    identity = PlanIdentity(
        tierctl_version="1",
        created_ms=NOW_MS,
        now_ms=NOW_MS,
        place=PLACE,
        source=replace(PLACE, tier=None),
        topic_ids={TOPIC_ID: "orders"},
    )
    options = {"log_start_offset": ["orders-0=100"], "off_lineage": False, "unreferenced_epochs": True}
    return SavedPlan.of(plan, identity, options)


PLAN = saved()
RAW: dict[str, Any] = json.loads(PLAN.dumps())


def test_a_plan_survives_its_text() -> None:
    again = SavedPlan.loads(PLAN.dumps())
    assert again == PLAN
    assert len(again.plan.steps) == 3
    assert again.settings["orders"]["retention_ms"] == 1
    assert list(again.log_starts.values()) == [0]
    assert again.to_json() == PLAN.to_json() == RAW


@pytest.mark.parametrize("name", ["log_start_offset", "off_lineage"])
def test_an_option_of_another_type_is_refused(name: str) -> None:
    options: dict[str, Any] = {**PLAN.options, "assume": []}
    Sweep.require_options(options)
    with pytest.raises(UsageError, match=f"options.{name}: expected"):
        Sweep.require_options({**options, name: 1e308})


def test_the_layout_of_the_text_does_not_matter() -> None:
    items = list(RAW.items())
    random.Random(1).shuffle(items)
    assert SavedPlan.loads(json.dumps(dict(items))) == PLAN


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the path of every field, element and leaf."""
    if path:
        yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield from places(each, (*path, key))


PLACES = list(places(RAW))


def edited(path: tuple[Any, ...], change: Any) -> dict[str, Any]:
    """Return the plan after `change(container, key)` at `path`."""
    raw: dict[str, Any] = json.loads(PLAN.dumps())
    container: Any = raw
    for key in path[:-1]:
        container = container[key]
    change(container, path[-1])
    return raw


def with_value(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    return edited(path, lambda container, key: container.__setitem__(key, value))


def delete(container: Any, key: Any) -> None:
    del container[key]


def add(container: Any, key: Any) -> None:
    if isinstance(container, dict):
        container[f"{key}x"] = container[key]
    else:
        container.insert(key, container[key])


@pytest.mark.parametrize("change", [delete, add])
def test_a_field_that_is_removed_or_added_is_refused(change: Any) -> None:
    assert len(PLACES) > 80
    for path in PLACES:
        with pytest.raises((SafetyRefusal, UsageError)):
            SavedPlan.loads(json.dumps(edited(path, change)))


@given(path=st.sampled_from(PLACES), value=JSON_VALUES)
def test_a_field_that_is_edited_is_refused(path: tuple[Any, ...], value: Any) -> None:
    raw = with_value(path, value)
    if json.dumps(raw) == json.dumps(RAW):
        assert SavedPlan.loads(json.dumps(raw)) == PLAN
        return
    with pytest.raises(SafetyRefusal, match=r"the plan's (digest|plan_version): expected .*, found "):
        SavedPlan.loads(json.dumps(raw))


@example(path=("read", "0"), value=float("inf"))
@given(path=st.sampled_from(PLACES), value=JSON_VALUES)
def test_a_forged_plan_is_read_or_refused(path: tuple[Any, ...], value: Any) -> None:
    """With a matching digest, no value raises an error of another kind than tierctl's."""
    raw = with_value(path, value)
    raw["digest"] = digest_of(raw)
    with contextlib.suppress(UsageError, SafetyRefusal):
        assert SavedPlan.loads(json.dumps(raw)).to_json().keys() == RAW.keys()


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("command",), {}, "command: expected"),
        (("identity", "cluster_id"), {}, "cluster_id: expected"),
        (("identity", "tier"), [], "tier: expected"),
        (("identity", "topic_ids", TOPIC_ID), 1.5, f"{TOPIC_ID}: expected"),
        (("steps", 0, "new_log_start_offset"), "", "new_log_start_offset: expected"),
        (("steps", 0, "state"), [], "state: expected"),
        (("steps", 0, "log_dir"), {}, "log_dir: expected"),
        (("steps", 0, "max_timestamp_ms"), True, "max_timestamp_ms: expected"),
        (("steps",), [{}], ""),
        (("steps",), [1], ""),
        (("skipped",), [{}], ""),
        (("read",), {"x": 1}, ""),
        (("read",), [], ""),
        (("steps", 0, "start_offset"), "0", ""),
        (("steps", 0, "start_offset"), -1, ""),
        (("steps", 0, "end_offset"), 1.5, ""),
        (("steps", 0, "end_offset"), True, ""),
        (("steps", 0, "action"), "explode", ""),
        (("steps", 0, "topic_id"), "short", ""),
        (("steps", 0, "topic_id"), None, ""),
        (("steps", 0, "segment_id"), 7, ""),
        (("steps", 0, "partition"), True, ""),
        (("steps", 0, "partition"), 1 << 31, ""),
    ],
)
def test_a_forged_value_of_another_type_is_refused(path: tuple[Any, ...], value: Any, says: str) -> None:
    raw = with_value(path, value)
    raw["digest"] = digest_of(raw)
    with pytest.raises(UsageError, match=f"not a plan: .*{says}" if says else None):
        SavedPlan.loads(json.dumps(raw))


def with_ids(cluster_id: str | None, topic_id: str | None, *, metadata: str = "/m") -> PlanPlace:
    ids = ClusterIdentity(
        cluster_id=cluster_id, metadata_topic_id=None if topic_id is None else Uuid(topic_id)
    )
    return PlanPlace(metadata=metadata, cluster=ids, tier=None, layout=None)


ONE, OTHER = "h0muvYe_TpOMWkoQBim7pw", "2QZ5FAXaQrqgUzsReWnweA"


@pytest.mark.parametrize(
    ("planned", "found", "field"),
    [
        (with_ids("a", ONE), with_ids("a", ONE, metadata="/moved"), None),
        (with_ids("a", None), with_ids("a", ONE, metadata="/moved"), None),
        (with_ids("a", ONE), with_ids("b", ONE), "cluster_id"),
        (with_ids("a", ONE), with_ids("a", OTHER), "metadata_topic_id"),
        (with_ids(None, ONE), with_ids("a", OTHER), "metadata_topic_id"),
        (with_ids(None, None), with_ids(None, None), None),
        (with_ids(None, None), with_ids(None, None, metadata="/other"), "metadata"),
        (with_ids("a", None), with_ids(None, ONE), None),
        (with_ids("a", None), with_ids(None, ONE, metadata="/other"), "metadata"),
        (PLACE, replace(PLACE, tier="s3://other/tier"), "tier"),
        (PLACE, replace(PLACE, tier=None), None),
        (PLACE, replace(PLACE, layout="kafka"), "layout"),
    ],
)
def test_a_plan_is_for_one_place(planned: PlanPlace, found: PlanPlace, field: str | None) -> None:
    if field is None:
        check_place(planned, found)
        return
    with pytest.raises(SafetyRefusal, match=f"the plan's source.{field}: expected"):
        check_place(planned, found, name="source.")
