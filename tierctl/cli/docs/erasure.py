"""The text of tierctl-restore(1) about --without-keys."""

from tierctl.read.record_rows import KEY_FORMS

ERASURE = (
    f"""--without-keys FILE has one key a line, in UTF-8 and ended by a line feed: {KEY_FORMS}, as for tierctl
    fetch --erase-report. Binary keys are written as hex: or base64:, the empty key as hex: alone. A line
    that begins with one of these words and a colon is in that form. Empty lines and lines that end in a
    carriage return are refused.""",
    """A record with one of the keys keeps its offset and its timestamp, and loses key, value and headers, so
    that consumers read a record of nulls there; records of aborted transactions too. Its batch is
    compressed anew with the same codec and has a new length and a new CRC; every other field of the batch,
    and every other record, stays as it is. A batch that has none of the keys keeps its bytes. The new topic
    must not be compacted: compaction needs keys. restore --check reports these records as different from
    the tier.""",
    """For each new partition, --left-out DIR gets TOPIC-PARTITION.jsonl, also if it has none of the keys. Its
    first line says which log it is about, with the sizes of the segments and the SHA-256 of the set of
    keys; each other line has topic, partition, offset, timestamp, segment id and object of a record that
    was left out, and the SHA-256 of its key, never the key. A short key can be guessed from that: keep the
    lists as you keep the keys. The list is written before the log is put in its place. A run after a kill
    takes a log for finished only if a list of the same keys, with a right signature, says so. Keys that
    occur in no restored record are named by their lines at the end of the run.""",
    """The objects of the tier still have the records: delete the old topic to erase them. tierctl fetch
    --erase-report names the objects. --sign-with FILE is an Ed25519 private key in PEM (openssl genpkey
    -algorithm ed25519 -out key.pem), the signature is in TOPIC-PARTITION.jsonl.sig, 64 bytes over the whole
    list (RFC 8032). Whoever has the public key verifies it with OpenSSL 3:""",
)
"""Paragraphs."""

VERIFY_LIST = (
    "openssl pkey -in key.pem -pubout -out public.pem",
    "openssl pkeyutl -verify -pubin -inkey public.pem -rawin -in orders-0.jsonl -sigfile orders-0.jsonl.sig",
)
"""Commands that verify the list of orders-0."""
