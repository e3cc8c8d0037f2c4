"""Two sets have the same offsets, and the metadata have one of them: the other is given up only beside it.

The finished segment is read first: if it is damaged, the set without metadata is the only sound copy.
verify stores the missing indexes of a sound log by the same plan; rebuild stores nothing, and keeps both.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.apply.repairs import age, ago_ms, copy_objects, rename_segment
from tests.cli.shell import Ran, tierctl
from tests.verify.cases import CLICKS, OTHER
from tests.verify.tiers import Spoilt

Plan = dict[str, Any]


def rebuild(tier: Spoilt) -> tuple[Ran, Plan]:
    where = ("--metadata", tier.metadata, "--remote", tier.remote, "--log-dir", tier.metadata)
    ran = tierctl("rebuild", *where, "--topic", CLICKS, "--metadata-partitions", 5, "-o", "json")
    assert ran.out, ran.err
    return ran, ran.json


def verify(tier: Spoilt) -> tuple[Ran, Plan]:
    state, plan = tier.remote.parent / "state", tier.remote.parent / "plan.json"
    state.mkdir()
    where = ("--metadata", tier.metadata, "--remote", tier.remote, "--log-dir", tier.metadata)
    run = ("verify", *where, "--topic", CLICKS, "--state-dir", state, "--plan-out", plan)
    tierctl(*run, "--now", ago_ms(25 / 24))
    return tierctl(*run), json.loads(plan.read_text())


GIVING_UP = {"discard_segment", "delete_segment"}
COMMANDS = {"rebuild": rebuild, "verify": verify}


def _sound(path: Path) -> None:
    del path


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


SERVING: dict[str, tuple[str, Callable[[Path], None]]] = {
    "sound": (".log", _sound),
    "a damaged batch": (".log", _flipped),
    "no log": (".log", Path.unlink),
    "a damaged index": (".timeindex", _flipped),
    "no index": (".index", Path.unlink),
}
DUPLICATES = {"whole": "", "no snapshot": ".snapshot"}


@pytest.mark.parametrize("lacks", DUPLICATES.values(), ids=DUPLICATES)
@pytest.mark.parametrize("case", SERVING)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_duplicate_is_given_up_only_beside_a_sound_segment(
    writable: Callable[[str], Path], command: str, case: str, lacks: str
) -> None:
    tier = Spoilt(writable("tiered-cluster/before"), writable("tiered-cluster/before-remote"))
    duplicate, finished = copy_objects(tier), tier.segments(CLICKS)[1]
    if lacks:
        tier.object(duplicate, lacks).unlink()
    suffix, damage = SERVING[case]
    damage(tier.object(finished, suffix))
    ran, plan = COMMANDS[command](tier)
    given_up = {str(step["segment_id"]) for step in plan["steps"] if step["action"] in GIVING_UP}
    is_sound = case == "sound" or (command == "verify" and case == "no index")
    assert given_up == ({str(OTHER)} if is_sound else set()), ran.err
    if not is_sound:
        assert (ran.code, str(OTHER) in ran.out + ran.err) == (7, True), ran.err
        assert str(finished.segment_id) in ran.out + ran.err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_half_set_that_alone_has_its_offsets_stays(writable: Callable[[str], Path], command: str) -> None:
    tier = Spoilt(writable("tiered-cluster/before"), writable("tiered-cluster/before-remote"))
    path = tier.object(rename_segment(tier, 1), ".snapshot")
    path.unlink()
    age(list(path.parent.iterdir()))
    ran, plan = COMMANDS[command](tier)
    assert (plan["steps"], ran.code) == ([], 7), ran.err
    assert f"{OTHER}: not understood: it has no .snapshot" in ran.out + ran.err
