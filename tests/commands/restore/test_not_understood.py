"""Objects that are not understood: no plan gives a set up, and no log start follows from an absence."""

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from tierctl.errors import AuthenticationError, ExitCode, ObjectArchived, TierctlError
from tierctl.storage.layouts.aiven.layout import AivenLayout
from tierctl.storage.stores.local_store import LocalStore

from tests.cli.shell import Ran, tierctl
from tests.commands.ended import ended
from tests.commands.restore.unread import (
    COMMANDS,
    LAYOUTS,
    MUTATION_SHARE,
    TWINNED,
    Capture,
    Mutation,
    Plan,
    Tier,
    commands,
    edited,
    made_tier,
    mutations,
    verify,
)
from tests.hostile.worlds import World, joined, plain_batch
from tests.support.amounts import rest_in_matrix
from tests.support.lacking_store import BUCKET, LackingStore

GIVING_UP = {"discard_segment", "delete_segment", "delete_partition", "write_checkpoints"}
SERVING = {"publish_segment", "copy_objects", "restore_partition", "materialise_partition"}
PROOF = "bytes"
"""Word in the reason of a set that is given up: its objects are shorter than they state."""
Wanted = dict[str, tuple[Ran, Plan]]


@pytest.fixture(scope="module")
def world(capture: Capture, module_folder: Path) -> Callable[[str], tuple[Tier, Wanted]]:
    """Make the tier of a layout once, and run each command on it as it is."""
    made: dict[str, tuple[Tier, Wanted]] = {}

    def tier_of(layout: str) -> tuple[Tier, Wanted]:
        if layout not in made:
            tier = made_tier(capture, module_folder / layout, layout)
            for metadata in ("metadata", "whole"):
                verify(tier, metadata, "--now", int((time.time() - 25 * 3600) * 1000))
            made[layout] = tier, {name: run() for name, run in commands(tier).items()}
        return made[layout]

    return tier_of


@contextmanager
def refusing(name: str, error: Callable[[str], TierctlError]) -> Iterator[None]:
    """Let the local store refuse to read the objects whose keys contain `name`, as S3 does."""
    opened = LocalStore.open

    def refuse(store: LocalStore, key: str, start: int = 0, end: int | None = None) -> BinaryIO:
        if name in key:
            raise error(f"reading {key}")
        return opened(store, key, start, end)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStore, "open", refuse)
        yield


REFUSALS: dict[str, Callable[[str], TierctlError]] = {
    "permission": lambda doing: AuthenticationError(f"{doing}: AccessDenied", hint="check the rights"),
    "storage class": lambda doing: ObjectArchived(f"{doing}: InvalidObjectState", hint="restore the object"),
}


def facts(tier: Tier, plan: Plan) -> list[tuple[Any, ...]]:
    """Return what a plan says of the records that it serves: offsets, largest timestamp, size, epochs.

    Without its key, the manifest alone says where the last set ends.
    """
    names = ("end_offset", "max_timestamp_ms", "segment_size_in_bytes", "segment_leader_epochs")
    return [
        (step["start_offset"], *(() if tier.is_sealed else (step.get(name) for name in names)))
        for step in plan["steps"]
        if step["action"] in SERVING
    ]


def assert_safe(tier: Tier, ran: Ran, plan: Plan, wanted: Plan, victim: str, *, is_unread: bool) -> None:
    """Assert that a plan is the `wanted` one, or that it gives nothing up and says what it leaves out."""
    said = ran.out + ran.err
    assert ran.code not in {ExitCode.INTERNAL, ExitCode.USAGE, ExitCode.LIMIT}, said
    own, whole = facts(tier, plan), facts(tier, wanted)
    gone = {step["segment_id"]: step["reason"] for step in plan["steps"] if step["action"] in GIVING_UP}
    told = [each["reason"] for each in plan["skipped"] if each["segment_id"] == victim]
    told += [line for line in ran.err.splitlines() if victim in line]
    is_proven = any(re.search(rf"incomplete.*{PROOF}|not read.*{PROOF}", each) for each in told)
    if (is_unread and victim in tier.twins) or (own != whole and not is_proven):
        assert all(PROOF in reason for reason in gone.values()), said
    assert gone.keys() <= {victim, tier.twins[-1]}, said
    is_whole = [each[0] for each in own] == [each[0] for each in whole]
    if is_whole and plan.get("offsets") == wanted.get("offsets"):
        assert own == whole, said
        return
    assert victim in said, said
    assert is_proven or ran.code == ExitCode.CORRUPT, said
    assert set(plan.get("offsets", ())) <= set(wanted.get("offsets", ()))
    if own and not is_proven:
        assert own[0][0] == whole[0][0], said
        assert tier.is_sealed or all(a[1] + 1 == b[0] or b[0] <= a[0] for a, b in pairwise(own)), said
        assert {each[0] for each in own} <= {each[0] for each in whole}, said


MUTATED = rest_in_matrix(sorted(LAYOUTS, key="aiven, encrypted".__eq__), len(LAYOUTS) - 1)
"""With its key, a tier that is encrypted is read as one that is not: it takes its turn in `make matrix`."""


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("layout", MUTATED)
def test_every_mutation_of_an_object(
    world: Callable[[str], tuple[Tier, Wanted]], layout: str, command: str
) -> None:
    tier, wanted = world(layout)
    run, shift = commands(tier)[command], COMMANDS.index(command)
    table: list[tuple[Mutation, str]] = [(each, "") for each in mutations(tier, shift)]
    # The log may have the only copy of its records, whatever is missing beside it.
    table += [
        (Mutation(f"no {suffix}", suffix, None), "missing")
        for suffix in tier.layout.suffixes
        if suffix != ".log"
    ]
    table += [
        (Mutation(f"{refusal} of {suffix}", suffix, None, is_unread=True), refusal)
        for suffix in tier.layout.suffixes
        for refusal in REFUSALS
    ]
    for at, (mutation, refusal) in enumerate(table[shift % MUTATION_SHARE :: MUTATION_SHARE]):
        stem = tier.places[(at + shift) % len(tier.places)]
        with (
            tier.changed(stem, mutation)
            if refusal not in REFUSALS
            else refusing(f"{stem}{mutation.suffix}", REFUSALS[refusal])
        ):
            ran, plan = run()
        try:
            assert_safe(tier, ran, plan, wanted[command][1], stem[21:], is_unread=mutation.is_unread)
        except AssertionError as e:
            raise AssertionError(f"{command}: {mutation.name} of {stem}: {e}") from e


@contextmanager
def in_s3(tier: Tier) -> Iterator[tuple[Tier, LackingStore]]:
    """Yield the tier as it is read from a server, and the server, which may refuse its objects."""
    with LackingStore() as store, pytest.MonkeyPatch.context() as patch:
        store.found(patch)
        for path in filter(Path.is_file, tier.remote.rglob("*")):
            key = f"a/{path.relative_to(tier.remote)}"
            store.put({key: path.read_bytes()})
            store.objects[key].written_s = path.stat().st_mtime
        yield replace(tier, uri=f"s3://{BUCKET}/a"), store


SERVER_REFUSALS = {
    "AccessDenied": ("forbidden", ExitCode.AUTHENTICATION),
    "GLACIER": ("archived", ExitCode.CORRUPT),
    "DEEP_ARCHIVE": ("archived", ExitCode.CORRUPT),
}
"""Refusals of a server: the setting of the server, and the exit code if it refuses all objects."""
SERVED = ["rebuild", "restore log", "restore into", "verify --plan-out", "fetch --rebuild"]


@pytest.mark.parametrize(
    "case",
    rest_in_matrix(
        [
            ("kafka", "rebuild"),
            ("aiven", "restore log"),
            ("kafka", "restore into"),
            ("kafka", "fetch --rebuild"),
            ("aiven", "verify --plan-out"),
        ],
        tried=2,
    ),
    ids="-".join,
)
def test_objects_that_a_server_refuses(
    world: Callable[[str], tuple[Tier, Wanted]], case: tuple[str, str]
) -> None:
    """Each kind of object is refused once, and all are; the refusals take turns.

    `test_every_mutation_of_an_object` has the same errors of a store for every command.
    """
    layout, command = case
    tier, wanted = world(layout)
    with in_s3(tier) as (served, store):
        run = commands(served)[command]
        for at, suffix in enumerate((*tier.layout.suffixes, ""), SERVED.index(command)):
            store.archive = list(SERVER_REFUSALS)[at % len(SERVER_REFUSALS)]
            setting, code = SERVER_REFUSALS[store.archive]
            stem = tier.places[at % len(tier.places)]
            setattr(store, setting, f"{stem}{suffix}" if suffix else "a/")
            ran, plan = run()
            setattr(store, setting, "")
            if suffix:
                assert_safe(tier, ran, plan, wanted[command][1], stem[21:], is_unread=True)
            else:
                assert (ran.code, plan["steps"]) == (code, []), ran.err


@pytest.mark.parametrize("layout", ["kafka", "aiven"])
def test_a_tier_of_which_nothing_may_be_read(
    world: Callable[[str], tuple[Tier, Wanted]], layout: str
) -> None:
    tier, _ = world(layout)
    for command, run in commands(tier).items():
        with refusing(".", REFUSALS["permission"]):
            ran, plan = run()
        assert plan["steps"] == [], command
        assert (ran.code, "AccessDenied" in ran.out + ran.err) == (ExitCode.AUTHENTICATION, True), (
            f"{command}: {ran.err}"
        )


@pytest.mark.parametrize("command", ["restore log", "restore into", "restore new-ids"])
@pytest.mark.parametrize("layout", ["kafka", "aiven"])
def test_no_restored_log_goes_on_at_the_offsets_of_an_incomplete_set(
    world: Callable[[str], tuple[Tier, Wanted]], layout: str, command: str
) -> None:
    """Consumers would find other records there. The operator gives the set up, or sets it aside."""
    tier, _ = world(layout)
    last, run = tier.sets[-1], commands(tier)[command]
    given_up = "--until" if command == "restore log" else "--after-hole"
    with tier.changed(last, Mutation("cut", ".log", lambda data: data[:2000])):
        ran, plan = run()
        if given_up == "--after-hole":
            others = run(given_up)
            assert (others[0].code, bool(facts(tier, others[1]))) == (0, True), others[0].err
    refused = re.search(r"--apply would refuse this: .*", ran.err)
    where = f"offset {int(last[:20])}"
    assert refused, ran.err
    assert where in refused[0]
    assert given_up in refused[0]
    assert facts(tier, plan) == []
    with ExitStack() as stack:
        for path in list(tier.remote.rglob(f"{last}.*")):
            stack.enter_context(renamed(path, tier.folder / path.name))
        ran, plan = run()
    assert facts(tier, plan)
    assert (ran.code, where in ran.err) == (0, False), ran.err


@pytest.mark.parametrize("command", ["rebuild", "rebuild with logs"])
def test_sets_without_their_key_that_disagree_with_the_lineage(
    world: Callable[[str], tuple[Tier, Wanted]], command: str
) -> None:
    """The leader-epoch index would tell who is right, but it is encrypted."""
    tier, wanted = world("aiven, no key")
    change = edited(
        ("remoteLogSegmentMetadata", "segmentLeaderEpochs"), lambda of: {"7": next(iter(of.values()))}
    )
    for stem in tier.places:
        with tier.changed(stem, Mutation("another leader epoch", ".rsm-manifest", change)):
            ran, plan = commands(tier)[command]()
        assert_safe(tier, ran, plan, wanted[command][1], stem[21:], is_unread=False)


def test_a_file_size_that_contradicts_the_stored_chunks(tmp_path: Path) -> None:
    """Without compression the stored chunks have the log's bytes: the size of the log can't be another."""
    world = World(tmp_path)
    for number, start in enumerate((0, 50)):
        log = joined([plain_batch(start + offset, b"value") for offset in range(50)])
        world.segment(number, log, start_offset=start, end_offset=start + 49, layout=AivenLayout())
    manifest = min(world.remote.rglob("*.rsm-manifest"))
    document = json.loads(manifest.read_text())
    document["chunkIndex"]["originalFileSize"] -= 1
    manifest.write_text(json.dumps(document))
    ran = tierctl(*("rebuild", "--metadata", tmp_path / "new", "--remote", world.remote, "--layout", "aiven"))
    ended(ran, 7, f"its manifest has {len(log) - 1} bytes in chunks of")
    assert "publish_segment" not in ran.out


ENTRIES: dict[str, Callable[[Path, Path], None]] = {
    "link": lambda path, target: path.symlink_to(target),
    "pipe": lambda path, _: os.mkfifo(path),
    "folder": lambda path, _: path.mkdir(),
}
"""What has the name of an object, or of its folder, and can't be read in its place."""


@contextmanager
def replaced(path: Path, aside: Path, make: Callable[[Path, Path], None]) -> Iterator[None]:
    """Set `path` aside during the block, and make another entry with its name."""
    path.rename(aside)
    make(path, aside)
    try:
        yield
    finally:
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        aside.rename(path)


@contextmanager
def renamed(path: Path, aside: Path) -> Iterator[None]:
    """Move a file during the block."""
    path.rename(aside)
    yield
    aside.rename(path)


@contextmanager
def archived(paths: Sequence[Path]) -> Iterator[None]:
    """Give objects another suffix during the block, as an archive of compressed objects does."""
    with ExitStack() as stack:
        for path in paths:
            stack.enter_context(renamed(path, Path(f"{path}.zst")))
        yield


@pytest.mark.parametrize("command", [*SERVED, "restore new-ids"])
@pytest.mark.parametrize("layout", ["kafka", "aiven"])
def test_entries_that_are_no_objects(
    world: Callable[[str], tuple[Tier, Wanted]], layout: str, command: str
) -> None:
    """Records whose object, or whose folder, can't be read are not taken to be lost."""
    tier, wanted = world(layout)
    run, stem = commands(tier)[command], tier.sets[TWINNED + 1]
    path = tier.path(stem, ".log")
    for entry, make in ENTRIES.items():
        with replaced(path, tier.folder / "aside", make):
            ran, plan = run()
        assert_safe(tier, ran, plan, wanted[command][1], stem[21:], is_unread=True)
        assert "records are lost" not in ran.err, (entry, ran.err)
        if not command.startswith("verify"):
            ended(ran, ExitCode.CORRUPT, path.name)
    for suffixes in ([".log"], tier.layout.suffixes):
        with archived([tier.path(stem, suffix) for suffix in suffixes]):
            ran, plan = run()
        assert_safe(tier, ran, plan, wanted[command][1], stem[21:], is_unread=True)
        assert "records are lost" not in ran.err, (suffixes, ran.err)
        if not command.startswith("verify"):
            ended(ran, ExitCode.CORRUPT, stem[21:])
    folder = path.parent
    for entry in ("link", "pipe"):
        with replaced(folder, tier.folder / "aside", ENTRIES[entry]):
            ran, plan = run()
        assert not facts(tier, plan), (entry, plan)
        if not command.startswith("verify"):
            ended(ran, ExitCode.CORRUPT, folder.name)
