"""The table of checks: everything that `doctor` examines.

A new check is a row here and the code that examines it, in the module of its subject:

settings_files  --broker-config, --command-config and --topic-configs
brokers         settings and versions of brokers
metadata_topic  the metadata topic: replication, retention, compaction
topics          settings of topics
clocks          clocks of brokers and of the store, compared with the clock of this machine
rights          permissions of the user on the cluster
store           features, permissions and lifecycle rules of the tier's store
store_probe     the same, by writing probe objects
state_dir       the state directory
secrets         files with passwords and keys
log_dirs        brokers' log directories
leader_epochs   leader-epoch checkpoints of replicas, compared with the tier
executors       the Spark session and its executors
"""

from tierctl.doctor.result import Outcome, Row
from tierctl.row_enum import RowEnum

_CLUSTER = "--bootstrap-server, or --metadata kafka://..."
_REMOTE = "--remote"
_PROBE = "--remote and --probe-writes"
_SPARK = "--engine spark"


class Check(RowEnum):
    """The table: one member per check, which is equal to its name in the output."""

    row: Row

    BROKER_FILE = Row(
        "broker_file",
        Outcome.PROBLEM,
        needs="--broker-config",
        why="A broker ignores a setting that it does not know, and does not start if a value is invalid.",
        fix="correct the line",
    )
    CLIENT_FILE = Row(
        "client_file",
        Outcome.PROBLEM,
        needs="--command-config",
        why="With a wrong setting tierctl can't connect to the cluster, or connects with wrong security.",
        fix="correct the line",
    )
    TOPIC_FILE = Row(
        "topic_file",
        Outcome.PROBLEM,
        needs="--topic-configs",
        why="Kafka refuses these settings, and tierctl does not use them for decisions.",
        fix="correct the line",
    )
    BROKER_CONFLICTS = Row(
        "broker_conflicts",
        Outcome.PROBLEM,
        needs=_CLUSTER,
        why="Settings that are valid each on its own may contradict each other, or damage the metadata "
        "topic.",
        fix="see CONFLICTS",
    )
    BROKERS_AGREE = Row(
        "brokers_agree",
        Outcome.PROBLEM,
        needs=_CLUSTER,
        why="The settings of the leader's broker decide how a partition is tiered, so a new leader changes "
        "that; a leader without tiering serves no records from the tier.",
        fix="give all brokers the same value, and restart them one by one",
    )
    BROKER_VERSION = Row(
        "broker_version",
        Outcome.PROBLEM,
        needs=f"--kafka-version, or {_CLUSTER}",
        why="Some releases of Kafka delete segments that have not expired.",
        fix="upgrade the brokers to a release with the fix",
    )
    CUSTOM_METADATA = Row(
        "custom_metadata",
        Outcome.PROBLEM,
        needs="--broker-config with settings of Aiven's plugin, and --topic-configs or a cluster",
        why="If the custom metadata of a segment exceeds remote.log.metadata.custom.metadata.max.bytes, the "
        "broker deletes the copy and stops copying the partition (KIP-917).",
        fix="raise the limit, or leave OBJECT_KEY and OBJECT_PREFIX out of custom.metadata.fields.include",
    )
    METADATA_SETTINGS = Row(
        "metadata_settings",
        Outcome.PROBLEM,
        needs=f"{_CLUSTER}, or --topic-configs with settings of the metadata topic",
        why="Brokers know the tier only from the events of the metadata topic: if events are lost, brokers "
        "lose the segments.",
        fix="see CONFLICTS",
    )
    METADATA_REPLICAS = Row(
        "metadata_replicas",
        Outcome.PROBLEM,
        needs=_CLUSTER,
        why="While a partition of the metadata topic is not writable, brokers copy and delete no segments of "
        "its user partitions.",
        fix="bring the missing brokers back, or reassign the partitions to others",
    )
    METADATA_PARTITIONS = Row(
        "metadata_partitions",
        Outcome.PROBLEM,
        needs="--metadata, and --broker-config with remote.log.metadata.topic.num.partitions",
        why="The metadata partition of a user partition follows from the number of partitions: with another "
        "number, brokers look for segments in the wrong partition and find none.",
        fix="set the setting to the topic's number of partitions, and never add partitions to the topic",
    )
    TOPIC_CONFLICTS = Row(
        "topic_conflicts",
        Outcome.PROBLEM,
        needs=_CLUSTER,
        why="Settings of a topic that are valid each on its own may contradict each other, or prevent "
        "tiering.",
        fix="see CONFLICTS",
    )
    TIERED_TOPICS = Row(
        "tiered_topics",
        Outcome.PROBLEM,
        needs=_CLUSTER,
        why="While a topic has remote.storage.enable=true, brokers with "
        "remote.log.storage.system.enable=false do not start, and do not read the topic's tier.",
        fix="set remote.log.storage.system.enable=true, or end the tiering of the topics first",
    )
    CONTROLLER_CLOCK = Row(
        "controller_clock",
        Outcome.PROBLEM,
        needs=_CLUSTER,
        why="tierctl uses the clock of its own machine for retention and for the age of unfinished copies. "
        "If it differs from the brokers' clocks, tierctl deletes segments that brokers would keep.",
        fix="synchronize the clocks (NTP) before anything is deleted",
    )
    EVENT_CLOCK = Row(
        "event_clock",
        Outcome.PROBLEM,
        needs="--metadata",
        why="Events with a time in the future show that the clock of a broker, or of this machine, is wrong.",
        fix="synchronize the clocks (NTP) before anything is deleted",
    )
    STORE_CLOCK = Row(
        "store_clock",
        Outcome.PROBLEM,
        needs="--remote s3://..., or --remote and --probe-writes",
        why="The store's clock decides whether another run's lease has expired, and how old orphaned objects "
        "are; S3 refuses requests whose time is wrong by 15 minutes or more.",
        fix="synchronize the clock of this machine (NTP)",
    )
    CLUSTER_RIGHTS = Row(
        "cluster_rights",
        Outcome.WARNING,
        needs=_CLUSTER,
        why="Without this right, tierctl can't find out whether the brokers tier, and therefore refuses to "
        "change anything.",
        fix="grant the right with kafka-acls",
    )
    METADATA_RIGHTS = Row(
        "metadata_rights",
        Outcome.PROBLEM,
        needs=_CLUSTER,
        why="Every command reads the metadata topic; copy, sweep and delete write to it.",
        fix="grant the right with kafka-acls",
    )
    TOPIC_RIGHTS = Row(
        "topic_rights",
        Outcome.WARNING,
        needs=_CLUSTER,
        why="sweep reads the settings and offsets of a topic, and raises its log start offset before it "
        "deletes segments.",
        fix="grant the right with kafka-acls",
    )
    STORE_LIST = Row(
        "store_list",
        Outcome.PROBLEM,
        needs=_REMOTE,
        why="Without the right to list, tierctl can't prove that objects exist, or that they were deleted.",
        fix="correct --remote, or grant the right to list (S3: s3:ListBucket)",
    )
    STORE_READ = Row(
        "store_read",
        Outcome.PROBLEM,
        needs=_REMOTE,
        why="Consumers of old records, fetch and verify --deep read objects.",
        fix="grant the right to read (S3: s3:GetObject; also kms:Decrypt if the bucket encrypts by KMS)",
    )
    STORE_WRITE = Row(
        "store_write",
        Outcome.PROBLEM,
        needs=_PROBE,
        why="copy stores objects, and every run that changes a tier first writes its lease.",
        fix="grant the right to write (S3: s3:PutObject, s3:AbortMultipartUpload), or free space",
    )
    STORE_DELETE = Row(
        "store_delete",
        Outcome.PROBLEM,
        needs=_PROBE,
        why="Segments whose objects can't be deleted stay in the store for ever and cost money.",
        fix="grant the right to delete (S3: s3:DeleteObject), and look for an object lock or bucket policy",
    )
    STORE_CONDITIONS = Row(
        "store_conditions",
        Outcome.PROBLEM,
        needs=_PROBE,
        why="If the store ignores the conditions of a write, two runs can hold the lease at the same time, "
        "and one copy can overwrite the objects of another.",
        fix="use a store, or a newer release of it, that supports If-None-Match and If-Match for PutObject",
    )
    STORE_LEASE = Row(
        "store_lease",
        Outcome.PROBLEM,
        needs=_REMOTE,
        why="Without a lease, two runs on two machines can change the tier at the same time.",
        fix="run tierctl on one machine only and with --no-lease, or use a store with a lease: file, s3, "
        "hdfs",
    )
    STORE_VERSIONING = Row(
        "store_versioning",
        Outcome.WARNING,
        needs="--remote s3://...",
        why="In a bucket with versioning, a deleted segment stays as a noncurrent version and costs money.",
        fix="add a lifecycle rule that expires noncurrent versions, or suspend versioning",
    )
    STORE_LIFECYCLE = Row(
        "store_lifecycle",
        Outcome.PROBLEM,
        needs="--remote s3://...",
        why="The store deletes or archives objects that brokers still list: consumers then get errors, and "
        "the records are lost.",
        fix="remove the rule, or restrict it to a prefix without the tier; retention belongs to Kafka",
    )
    STORE_UPLOADS = Row(
        "store_uploads",
        Outcome.WARNING,
        needs="--remote s3://...",
        why="The parts of a multipart upload that was never completed are not listed as objects, and cost "
        "money until the upload is aborted.",
        fix="add a lifecycle rule AbortIncompleteMultipartUpload, or abort the uploads (aws s3api "
        "abort-multipart-upload)",
    )
    STATE_DIR_ACCESS = Row(
        "state_dir_access",
        Outcome.PROBLEM,
        needs="--state-dir",
        why="tierctl decides deletions from the caches in the state directory, so only tierctl may be able "
        "to write them.",
        fix="give the directory and its files to the user who runs tierctl, with mode 0700",
    )
    STATE_DIR_SPACE = Row(
        "state_dir_space",
        Outcome.WARNING,
        needs="--state-dir",
        why="A run writes each cache a second time before it removes the old one; on a full disk it fails, "
        "and the next run reads the whole metadata topic again.",
        fix="free space, or move the directory to a larger disk",
    )
    SECRETS = Row(
        "secrets",
        Outcome.PROBLEM,
        needs="a file with settings or keys: --command-config, --broker-config, --aiven-private-key, "
        "tierctl.toml",
        why="A user who can read a password or a private key can act as tierctl, or decrypt the tier; a user "
        "who can write the file can choose which tier tierctl deletes from.",
        fix="chown the file to the user who runs tierctl, and chmod it to 0600",
    )
    LOG_DIR_ACCESS = Row(
        "log_dir_access",
        Outcome.PROBLEM,
        needs="--log-dir",
        why="copy reads the segments of the log directories, and can't copy a segment that it can't read.",
        fix="run tierctl as a user who may read the log directories of Kafka",
    )
    LOG_SNAPSHOTS = Row(
        "log_snapshots",
        Outcome.PROBLEM,
        needs="--log-dir",
        why="Neither brokers nor tierctl copy a segment without the producer snapshot at its end, nor any "
        "later segment of the partition (segments written before Kafka 2.8 may have no snapshot).",
        fix="wait until retention has deleted the segment, or raise the log start offset above it "
        "(DeleteRecords)",
    )
    LEADER_EPOCHS = Row(
        "leader_epochs",
        Outcome.PROBLEM,
        needs="--log-dir and --metadata",
        why="A broker that leads with a leader-epoch checkpoint that lost entries deletes the segments of "
        "these epochs from the tier.",
        fix="keep the replica from leading, stop its broker, and run tierctl rebuild --log-start tier",
    )
    SPARK_SESSION = Row(
        "spark_session",
        Outcome.PROBLEM,
        needs=_SPARK,
        why="Every command with --engine spark starts this session, and ends with the same error.",
        fix="correct --master and --spark-conf, or start the Spark master",
    )
    SPARK_PYTHON = Row(
        "spark_python",
        Outcome.PROBLEM,
        needs=_SPARK,
        why="Executors run tierctl's functions in their own Python: with another minor version of Python, "
        "another tierctl, or without a library, every job fails.",
        fix="give executors the driver's Python: the option --python-archive of tierctl submit, or "
        "--spark-conf spark.pyspark.python=...",
    )
    SPARK_SCRATCH = Row(
        "spark_scratch",
        Outcome.PROBLEM,
        needs=_SPARK,
        why="verify --deep and copies between tiers store whole segments in the executor's folder for "
        "temporary files, one for each task.",
        fix="free space on the executor, or set TMPDIR in the environment of the Spark workers",
    )
    SPARK_CLUSTER = Row(
        "spark_cluster",
        Outcome.PROBLEM,
        needs=f"{_SPARK}, and a cluster",
        why="Executors connect to the brokers themselves: an address such as localhost is another machine "
        "there, and files with credentials must have the same path.",
        fix="use addresses and listeners that executors reach, and copy the file of --command-config to them",
    )
    SPARK_METADATA = Row(
        "spark_metadata",
        Outcome.PROBLEM,
        needs=f"{_SPARK} and --metadata",
        why="Executors read the metadata topic themselves; with other files than the driver's, or without "
        "the right to read, every command that reads the topic fails.",
        fix="use a shared file system for folders, or grant the right to read with kafka-acls",
    )
    SPARK_STORE = Row(
        "spark_store",
        Outcome.PROBLEM,
        needs=f"{_SPARK} and --remote",
        why="Executors read, store and delete objects with the credentials of their own environment, which "
        "may differ from those of the driver.",
        fix="give executors an instance role, a profile or their own environment; use a shared file system "
        "for folders",
    )
