"""The registries: every check of `doctor` and of `restore check`; the man pages are generated from them.

A new check is a row here, the code that examines it, in the module of its subject, and the call of that code
in `commands.doctor` or `commands.restore.check`:

settings     tierctl.toml, files of settings, settings and versions of brokers, topics, the metadata topic
environment  clocks, rights, files with secrets, the state directory, brokers' log directories, executors
store        features, permissions and lifecycle rules of the tier's store, also by writing probe objects
restored     what the tier, the metadata topic and brokers' logs still have after a restore
served       what consumers and producers of a restored topic get from brokers
"""

from tierctl.checks.check import Check, CheckTable
from tierctl.model.choices import Severity

CLUSTER = "--bootstrap-server, or --metadata kafka://..."
"""The part of `needs` that every check of a running cluster has."""
_REMOTE = "--remote"
_PROBE = "--remote and --probe-writes"
_PROBE_OR_FOLDER = "--remote, and --probe-writes unless the tier is a folder"
_SPARK = "--engine spark"


class DoctorCheck(CheckTable):
    """The checks of `doctor`."""

    TIERCTL_SETTINGS = Check(
        "tierctl_settings",
        Severity.ERROR,
        needs="tierctl.toml",
        why="A command that the setting concerns ends with this error.",
        fix="correct the line, or the variable of the environment",
    )
    BROKER_FILE = Check(
        "broker_file",
        Severity.ERROR,
        needs="--broker-config",
        why="A broker ignores a setting that it does not know, and does not start if a value is invalid.",
        fix="correct the line",
    )
    CLIENT_FILE = Check(
        "client_file",
        Severity.ERROR,
        needs="--command-config",
        why="With a wrong setting tierctl can't connect to the cluster, or connects with wrong security.",
        fix="correct the line",
    )
    TOPIC_FILE = Check(
        "topic_file",
        Severity.ERROR,
        needs="--topic-configs",
        why="Kafka refuses these settings, and tierctl does not use them for decisions.",
        fix="correct the line",
    )
    BROKER_CONFLICTS = Check(
        "broker_conflicts",
        Severity.ERROR,
        needs=CLUSTER,
        why="Settings that are valid each on its own may contradict each other, or damage the metadata "
        "topic.",
        fix="see CONFLICTS",
    )
    CONTROLLER_TIERS = Check(
        "controller_tiers",
        Severity.ERROR,
        needs=f"{CLUSTER}, and the right to create topics",
        why="The controller decides about the settings of topics: while it refuses a tiered topic, no topic "
        "can be made one, although the brokers tier.",
        fix="set remote.log.storage.system.enable=true on all controllers, too, and restart them one by one",
    )
    BROKERS_AGREE = Check(
        "brokers_agree",
        Severity.ERROR,
        needs=CLUSTER,
        why="The settings of the leader's broker decide how a partition is tiered, so a new leader changes "
        "that; a leader without tiering serves no records from the tier.",
        fix="give all brokers the same value, and restart them one by one",
    )
    BROKER_VERSION = Check(
        "broker_version",
        Severity.ERROR,
        needs=f"--kafka-version, or {CLUSTER}",
        why="Some releases of Kafka delete segments that have not expired.",
        fix="upgrade the brokers to a release with the fix",
    )
    CUSTOM_METADATA = Check(
        "custom_metadata",
        Severity.ERROR,
        needs="--broker-config with settings of Aiven's plugin, and --topic-configs or a cluster",
        why="If the custom metadata of a segment exceeds remote.log.metadata.custom.metadata.max.bytes, the "
        "broker deletes the copy and stops copying the partition (KIP-917).",
        fix="raise the limit, or leave OBJECT_KEY and OBJECT_PREFIX out of custom.metadata.fields.include",
    )
    METADATA_SETTINGS = Check(
        "metadata_settings",
        Severity.ERROR,
        needs=f"{CLUSTER}, or --topic-configs with settings of the metadata topic",
        why="Brokers know the tier only from the events of the metadata topic: if events are lost, brokers "
        "lose the segments.",
        fix="see CONFLICTS",
    )
    METADATA_REPLICAS = Check(
        "metadata_replicas",
        Severity.ERROR,
        needs=CLUSTER,
        why="While a partition of the metadata topic is not writable, brokers copy and delete no segments of "
        "its user partitions.",
        fix="bring the missing brokers back, or reassign the partitions to others",
    )
    METADATA_PARTITIONS = Check(
        "metadata_partitions",
        Severity.ERROR,
        needs="--metadata, and --broker-config of a broker that tiers",
        why="A broker whose setting, by default 50, is not the topic's number of partitions stops when it is "
        "started; before Kafka 4.2 it may also run on, and copies and deletes nothing. If both are changed, "
        "brokers look for segments in the wrong metadata partition and find none.",
        fix="set the setting to the topic's number of partitions, and never add partitions to the topic",
    )
    TOPIC_CONFLICTS = Check(
        "topic_conflicts",
        Severity.ERROR,
        needs=CLUSTER,
        why="Settings of a topic that are valid each on its own may contradict each other, or prevent "
        "tiering.",
        fix="see CONFLICTS",
    )
    TIERED_TOPICS = Check(
        "tiered_topics",
        Severity.ERROR,
        needs=CLUSTER,
        why="While a topic has remote.storage.enable=true, brokers with "
        "remote.log.storage.system.enable=false do not start, and do not read the topic's tier.",
        fix="set remote.log.storage.system.enable=true, or end the tiering of the topics first",
    )
    CONTROLLER_CLOCK = Check(
        "controller_clock",
        Severity.ERROR,
        needs=CLUSTER,
        why="tierctl uses the clock of its own machine for retention and for the age of unfinished copies. "
        "If it differs from the brokers' clocks, tierctl deletes segments that brokers would keep.",
        fix="synchronize the clocks (NTP) before anything is deleted",
    )
    EVENT_CLOCK = Check(
        "event_clock",
        Severity.ERROR,
        needs="--metadata",
        why="Events with a time in the future show that the clock of a broker, or of this machine, is wrong.",
        fix="synchronize the clocks (NTP) before anything is deleted",
    )
    STORE_CLOCK = Check(
        "store_clock",
        Severity.ERROR,
        needs="--remote s3://..., or --remote and --probe-writes",
        why="The store's clock decides whether another run's lease has expired, and how old orphaned objects "
        "are; S3 refuses requests whose time is wrong by 15 minutes or more.",
        fix="synchronize the clock of this machine (NTP)",
    )
    CLUSTER_RIGHTS = Check(
        "cluster_rights",
        Severity.WARNING,
        needs=CLUSTER,
        why="Without this right, tierctl can't find out whether the brokers tier, and therefore refuses to "
        "change anything.",
        fix="grant the right with kafka-acls",
    )
    METADATA_RIGHTS = Check(
        "metadata_rights",
        Severity.ERROR,
        needs=CLUSTER,
        why="Every command reads the metadata topic; copy, sweep and delete write to it.",
        fix="grant the right with kafka-acls",
    )
    TOPIC_RIGHTS = Check(
        "topic_rights",
        Severity.WARNING,
        needs=CLUSTER,
        why="sweep reads the settings and offsets of a topic, and raises its log start offset before it "
        "deletes segments.",
        fix="grant the right with kafka-acls",
    )
    STORE_LIST = Check(
        "store_list",
        Severity.ERROR,
        needs=_REMOTE,
        why="Without the right to list, tierctl can't prove that objects exist, or that they were deleted.",
        fix="correct --remote, or grant the right to list (S3: s3:ListBucket)",
    )
    STORE_READ = Check(
        "store_read",
        Severity.ERROR,
        needs=_REMOTE,
        why="Consumers of old records, fetch and verify --deep read objects.",
        fix="grant the right to read (S3: s3:GetObject; also kms:Decrypt if the bucket encrypts by KMS)",
    )
    STORE_WRITE = Check(
        "store_write",
        Severity.ERROR,
        needs=_PROBE_OR_FOLDER,
        why="copy stores objects, and every run that changes a tier first writes its lease.",
        fix="grant the right to write (S3: s3:PutObject, s3:AbortMultipartUpload), or free space",
    )
    STORE_DELETE = Check(
        "store_delete",
        Severity.ERROR,
        needs=_PROBE_OR_FOLDER,
        why="Segments whose objects can't be deleted stay in the store for ever and cost money.",
        fix="grant the right to delete (S3: s3:DeleteObject), and look for an object lock or bucket policy",
    )
    STORE_CONDITIONS = Check(
        "store_conditions",
        Severity.ERROR,
        needs=_PROBE,
        why="If the store ignores the conditions of a write, two runs can hold the lease at the same time, "
        "and one copy can overwrite the objects of another.",
        fix="use a store, or a newer release of it, that supports If-None-Match and If-Match for PutObject",
    )
    STORE_LEASE = Check(
        "store_lease",
        Severity.ERROR,
        needs=_REMOTE,
        why="Without a lease, two runs on two machines can change the tier at the same time.",
        fix="run tierctl on one machine only and with --no-lease, or use a store with a lease: file, s3, "
        "hdfs",
    )
    STORE_VERSIONING = Check(
        "store_versioning",
        Severity.WARNING,
        needs="--remote s3://...",
        why="In a bucket with versioning, a deleted segment stays as a noncurrent version and costs money.",
        fix="add a lifecycle rule that expires noncurrent versions, or suspend versioning",
    )
    STORE_LIFECYCLE = Check(
        "store_lifecycle",
        Severity.ERROR,
        needs="--remote s3://...",
        why="The store deletes or archives objects that brokers still list: consumers then get errors, and "
        "the records are lost.",
        fix="remove the rule, or restrict it to a prefix without the tier; retention belongs to Kafka",
    )
    STORE_UPLOADS = Check(
        "store_uploads",
        Severity.WARNING,
        needs="--remote s3://...",
        why="The parts of a multipart upload that was never completed are not listed as objects, and cost "
        "money until the upload is aborted.",
        fix="add a lifecycle rule AbortIncompleteMultipartUpload, or abort the uploads (aws s3api "
        "abort-multipart-upload)",
    )
    STATE_DIR_ACCESS = Check(
        "state_dir_access",
        Severity.ERROR,
        needs="--state-dir",
        why="tierctl decides deletions from the caches in the state directory, so only tierctl may be able "
        "to write them.",
        fix="give the directory and its files to the user who runs tierctl, with mode 0700",
    )
    STATE_DIR_SPACE = Check(
        "state_dir_space",
        Severity.WARNING,
        needs="--state-dir",
        why="A run writes each cache a second time before it removes the old one; on a full disk it fails, "
        "and the next run reads the whole metadata topic again.",
        fix="free space, or move the directory to a larger disk",
    )
    SECRETS = Check(
        "secrets",
        Severity.ERROR,
        needs="a file with settings or keys: --command-config, --broker-config, --aiven-private-key, "
        "tierctl.toml",
        why="A user who can read a password or a private key can act as tierctl, or decrypt the tier; a user "
        "who can write the file can choose which tier tierctl deletes from.",
        fix="chown the file to the user who runs tierctl, and chmod it to 0600",
    )
    LOG_DIR_ACCESS = Check(
        "log_dir_access",
        Severity.ERROR,
        needs="--log-dir",
        why="copy reads the segments of the log directories, and can't copy a segment that it can't read.",
        fix="run tierctl as a user who may read the log directories of Kafka",
    )
    LOG_SNAPSHOTS = Check(
        "log_snapshots",
        Severity.ERROR,
        needs="--log-dir",
        why="Neither brokers nor tierctl copy a segment without the producer snapshot at its end, nor any "
        "later segment of the partition (segments written before Kafka 2.8 may have no snapshot).",
        fix="wait until retention has deleted the segment, or raise the log start offset above it "
        "(DeleteRecords)",
    )
    INDEX_CACHE = Check(
        "index_cache",
        Severity.ERROR,
        needs="--log-dir",
        why="A broker that tiers loads the indexes in remote-log-index-cache, in the first of its log.dirs, "
        "when it starts. With a file of another name it does not start, with a damaged index it does not, or "
        "reads other records than consumers ask for.",
        fix="stop the broker and remove the folder: the broker makes it again, and fetches the indexes anew",
    )
    LEADER_EPOCHS = Check(
        "leader_epochs",
        Severity.ERROR,
        needs="--log-dir and --metadata",
        why="A broker that leads with a leader-epoch checkpoint that lost entries deletes the segments of "
        "these epochs from the tier, and serves none of the offsets below its first entry.",
        fix="keep the replica from leading, stop its broker, and run tierctl rebuild --log-start tier; if "
        "the log start was raised in the last minute, check again after a minute",
    )
    SPARK_SESSION = Check(
        "spark_session",
        Severity.ERROR,
        needs=_SPARK,
        why="Every command with --engine spark starts this session, and ends with the same error.",
        fix="correct --master and --spark-conf, or start the Spark master",
    )
    SPARK_PYTHON = Check(
        "spark_python",
        Severity.ERROR,
        needs=_SPARK,
        why="Executors run tierctl's functions in their own Python: with another minor version of Python, "
        "another tierctl, or without a library, every job fails.",
        fix="give executors the driver's Python: the option --python-archive of tierctl submit, or "
        "--spark-conf spark.pyspark.python=...",
    )
    SPARK_SCRATCH = Check(
        "spark_scratch",
        Severity.ERROR,
        needs=_SPARK,
        why="verify --deep and copies between tiers store whole segments in the executor's folder for "
        "temporary files, one for each task.",
        fix="free space on the executor, or set TMPDIR in the environment of the Spark workers",
    )
    SPARK_CLUSTER = Check(
        "spark_cluster",
        Severity.ERROR,
        needs=f"{_SPARK}, and a cluster",
        why="Executors connect to the brokers themselves: an address such as localhost is another machine "
        "there, and files with credentials must have the same path.",
        fix="use addresses and listeners that executors reach, and copy the file of --command-config to them",
    )
    SPARK_METADATA = Check(
        "spark_metadata",
        Severity.ERROR,
        needs=f"{_SPARK} and --metadata",
        why="Executors read the metadata topic themselves; with other files than the driver's, or without "
        "the right to read, every command that reads the topic fails.",
        fix="use a shared file system for folders, or grant the right to read with kafka-acls",
    )
    SPARK_STORE = Check(
        "spark_store",
        Severity.ERROR,
        needs=f"{_SPARK} and --remote",
        why="Executors read, store and delete objects with the credentials of their own environment, which "
        "may differ from those of the driver.",
        fix="give executors an instance role, a profile or their own environment; use a shared file system "
        "for folders",
    )


_METADATA = "--metadata, the metadata topic of the brokers that are checked"


class RestoreCheck(CheckTable):
    """The checks of `restore check`."""

    OBJECTS = Check(
        "objects",
        Severity.ERROR,
        needs="--remote, and --before for the time before the check began",
        why="Objects of the tier were deleted or changed: a leader with a wrong log start or wrong leader "
        "epochs deletes every segment that it is told of.",
        fix="stop the brokers, deny deletes in the bucket, and bring the objects back from its versions or "
        "its copy; then rebuild, with --log-start tier if the log start was raised",
    )
    DELETIONS = Check(
        "deletions",
        Severity.ERROR,
        needs=_METADATA,
        why="Brokers began to delete segments that they had been told to serve.",
        fix="unless retention or DeleteRecords was meant to: stop the brokers before they delete more, and "
        "look for 'Deleted remote log segment' in their logs, which has the reason",
    )
    BROKER_LOGS = Check(
        "broker_logs",
        Severity.ERROR,
        needs="--broker-log",
        why="Brokers log each deletion of a remote segment, and each leader epoch that they drop because a "
        "new one contradicts it.",
        fix="unless retention or DeleteRecords was meant to delete them: stop the brokers before they delete "
        "more",
    )
    METADATA = Check(
        "metadata",
        Severity.ERROR,
        needs=f"{_METADATA}; not for a materialised topic",
        why="Brokers serve the segments that the metadata topic has as finished: one that is missing is out "
        "of range for readers, one of another lineage gives them records that the log never had.",
        fix="disable copying on the topic and run tierctl rebuild; what is finished and should not be must "
        "be deleted by an event: see tierctl verify",
    )
    RESTARTS = Check(
        "restarts",
        Severity.ERROR,
        needs=f"{_METADATA}, and {CLUSTER}; it finds brokers that lead metadata partitions",
        why="Brokers under which the metadata topic was deleted and created again skip new events until they "
        "are restarted: segments that they copy become unreadable once these are deleted locally.",
        fix="keep copying disabled and restart the brokers, then check again. Restart them also if the topic "
        "was only emptied while they were down: they don't need it then, but a client can't see the "
        "difference, and a restart does no harm",
    )
    OFFSETS = Check(
        "offsets",
        Severity.ERROR,
        needs=CLUSTER,
        why="A log start above the tier's makes brokers delete what is below it; a tiered offset below the "
        "tier's end leaves records out of range.",
        fix="keep copying disabled; see DeleteRecords and retention first, then "
        "tierctl rebuild --log-start tier",
    )
    LEADER_EPOCHS = Check(
        "leader_epochs",
        Severity.ERROR,
        needs=f"{CLUSTER}; with --log-dir the files of these directories are read, too",
        why="Without an epoch, brokers delete the segments that have it, and consumers whose position has it "
        "see a truncation at the next election.",
        fix="stop the brokers and put leader-epoch-checkpoint back: tierctl rebuild --log-start tier, or "
        "restore again",
    )
    RECORDS = Check(
        "records",
        Severity.ERROR,
        needs=CLUSTER,
        why="The brokers serve other records than the tier has, or not all of them.",
        fix="keep consumers away; tierctl verify --deep names damaged objects, tierctl segments --check "
        "wrong metadata",
    )
    SEEKS = Check(
        "seeks",
        Severity.ERROR,
        needs=CLUSTER,
        why="A consumer that begins at an offset, or at a time, gets another record or none: an index or a "
        "leader epoch is missing.",
        fix="see tierctl verify, and the check leader_epochs",
    )
    ELECTION = Check(
        "election",
        Severity.ERROR,
        needs=f"{CLUSTER} and --election-timeout",
        why="A consumer that holds its position over an election asks the new leader whether the log was "
        "truncated (KIP-320). If the epochs of the batches are not those of the log, it was: consumers stop, "
        "or start over.",
        fix="stop the brokers and put leader-epoch-checkpoint back, or materialise the topic",
    )
    NEXT_COPY = Check(
        "next_copy",
        Severity.ERROR,
        needs=f"{_METADATA}, and a segment that was copied since",
        why="Copies must go on where the tier ends: a lower one covers other segments, a gap stalls readers.",
        fix="set remote.log.copy.disable=true on the topic, and look at it with tierctl segments --check",
    )
    PRODUCERS = Check(
        "producers",
        Severity.ERROR,
        needs=f"{CLUSTER} and --produce",
        why="New producers can't write: their ids may be those of producers that the restored snapshots "
        "name (INVALID_PRODUCER_EPOCH).",
        fix="wait for producer.id.expiration.ms, by default a day: brokers then forget the restored "
        "producers",
    )
