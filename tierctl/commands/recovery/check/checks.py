"""Define the checks of `restore check`; the man page is generated from this table."""

from dataclasses import dataclass

from tierctl.row_enum import RowEnum

_CLUSTER = "--bootstrap-server, or --metadata kafka://..."
_METADATA = "--metadata, the metadata topic of the brokers that are checked"


@dataclass(frozen=True, slots=True)
class Row:
    """The facts about one check.

    `needs` names the options that the check requires, `why` explains what a failure means, and `fix` says
    what an operator can do.
    """

    name: str
    needs: str
    why: str
    fix: str


class RestoreCheck(RowEnum):
    """The checks; each member equals its name in the output."""

    row: Row

    OBJECTS = Row(
        "objects",
        needs="--remote, and --before for the time before the check began",
        why="Objects of the tier were deleted or changed: a leader with a wrong log start or wrong leader "
        "epochs deletes every segment that it is told of.",
        fix="stop the brokers, deny deletes in the bucket, and bring the objects back from its versions or "
        "its copy; then rebuild, with --log-start tier if the log start was raised",
    )
    DELETIONS = Row(
        "deletions",
        needs=_METADATA,
        why="Brokers began to delete segments that they had been told to serve.",
        fix="unless retention or DeleteRecords was meant to: stop the brokers before they delete more, and "
        "look for 'Deleted remote log segment' in their logs, which has the reason",
    )
    BROKER_LOGS = Row(
        "broker_logs",
        needs="--broker-log",
        why="Brokers log each deletion of a remote segment, and each leader epoch that they drop because a "
        "new one contradicts it.",
        fix="unless retention or DeleteRecords was meant to delete them: stop the brokers before they delete "
        "more",
    )
    METADATA = Row(
        "metadata",
        needs=f"{_METADATA}; not for a materialised topic",
        why="Brokers serve the segments that the metadata topic has as finished: one that is missing is out "
        "of range for readers, one of another lineage gives them records that the log never had.",
        fix="disable copying on the topic and run tierctl rebuild; what is finished and should not be must "
        "be deleted by an event: see tierctl verify",
    )
    RESTARTS = Row(
        "restarts",
        needs=f"{_METADATA}, and {_CLUSTER}; it finds brokers that lead metadata partitions",
        why="Brokers under which the metadata topic was deleted and created again skip new events until they "
        "are restarted: segments that they copy become unreadable once these are deleted locally.",
        fix="keep copying disabled and restart the brokers, then check again. Restart them also if the topic "
        "was only emptied while they were down: they don't need it then, but a client can't see the "
        "difference, and a restart does no harm",
    )
    OFFSETS = Row(
        "offsets",
        needs=_CLUSTER,
        why="A log start above the tier's makes brokers delete what is below it; a tiered offset below the "
        "tier's end leaves records out of range.",
        fix="keep copying disabled; see DeleteRecords and retention first, then "
        "tierctl rebuild --log-start tier",
    )
    LEADER_EPOCHS = Row(
        "leader_epochs",
        needs=f"{_CLUSTER}; with --log-dir the files of these directories are read, too",
        why="Without an epoch, brokers delete the segments that have it, and consumers whose position has it "
        "see a truncation at the next election.",
        fix="stop the brokers and put leader-epoch-checkpoint back: tierctl rebuild --log-start tier, or "
        "restore again",
    )
    RECORDS = Row(
        "records",
        needs=_CLUSTER,
        why="The brokers serve other records than the tier has, or not all of them.",
        fix="keep consumers away; tierctl verify --deep names damaged objects, tierctl segments --check "
        "wrong metadata",
    )
    SEEKS = Row(
        "seeks",
        needs=_CLUSTER,
        why="A consumer that begins at an offset, or at a time, gets another record or none: an index or a "
        "leader epoch is missing.",
        fix="see tierctl verify, and the check leader_epochs",
    )
    ELECTION = Row(
        "election",
        needs=f"{_CLUSTER} and --election-timeout",
        why="A consumer that holds its position over an election asks the new leader whether the log was "
        "truncated (KIP-320). If the epochs of the batches are not those of the log, it was: consumers stop, "
        "or start over.",
        fix="stop the brokers and put leader-epoch-checkpoint back, or materialise the topic",
    )
    NEXT_COPY = Row(
        "next_copy",
        needs=f"{_METADATA}, and a segment that was copied since",
        why="Copies must go on where the tier ends: a lower one covers other segments, a gap stalls readers.",
        fix="set remote.log.copy.disable=true on the topic, and look at it with tierctl segments --check",
    )
    PRODUCERS = Row(
        "producers",
        needs=f"{_CLUSTER} and --produce",
        why="New producers can't write: their ids may be those of producers that the restored snapshots "
        "name (INVALID_PRODUCER_EPOCH).",
        fix="wait for producer.id.expiration.ms, by default a day: brokers then forget the restored "
        "producers",
    )
