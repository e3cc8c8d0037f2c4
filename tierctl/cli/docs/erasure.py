"""The text of tierctl-restore-log(1) about --without-keys."""

from tierctl.read.record_rows import KEY_FORMS

ERASURE = (
    f"""The file of --without-keys has one key per line, in UTF-8, and each line ends with a line feed:
    {KEY_FORMS}, as for tierctl fetch --erase-report KEY. A line that begins with hex: or base64: is a key in
    that encoding; use these for binary keys, and hex: alone for the empty key. Empty lines and lines that end
    with a carriage return are refused.""",
    """A record with one of the keys keeps its offset and its timestamp and loses its key, value and headers,
    so consumers read a record with null key and null value. This includes records of aborted transactions.
    The batch of the record is compressed again with the same codec, and gets a new length and a new CRC; its
    other fields and records do not change. A batch without any of the keys keeps its bytes. The new topic
    must not be compacted, because compaction needs keys. restore check reports these records as different
    from the tier.""",
    """For each new partition, restore log writes TOPIC-PARTITION.jsonl to --left-out DIR, also if it has none
    of the keys. The first line of this list names the log, with the sizes of the segments and the SHA-256 of
    the set of keys. Each other line has topic, partition, offset, timestamp, segment id and object of an
    erased record, and the SHA-256 of its key, never the key itself. A short key can be guessed from its
    SHA-256, so protect the lists like the keys. The list is written before the log is renamed to its final
    name. After a killed run, the next run takes a log for finished only if a list with the same keys and a
    valid signature names it. Keys that no restored record has are reported at the end of the run, by the
    numbers of their lines.""",
    """The objects of the tier still contain the records: delete the old topic to erase them. tierctl fetch
    --erase-report KEY names the objects. --sign-with FILE is an Ed25519 private key in PEM (openssl genpkey
    -algorithm ed25519 -out key.pem). The signature is in TOPIC-PARTITION.jsonl.sig: 64 bytes over the whole
    list (RFC 8032). With the public key, OpenSSL 3 verifies the signature:""",
)
"""Paragraphs."""

VERIFY_LIST = (
    "openssl pkey -in key.pem -pubout -out public.pem",
    "openssl pkeyutl -verify -pubin -inkey public.pem -rawin -in orders-0.jsonl -sigfile orders-0.jsonl.sig",
)
"""Commands that verify the list of orders-0."""
