package tierctl.formatter;

import org.apache.kafka.clients.consumer.ConsumerRecord;

/** One record of the metadata topic, with its event or the error of decoding; a tombstone has neither. */
final class Row {
    final int partition;
    final long offset;
    final long timestampMs;
    final Event event;
    final String error;
    private final byte[] value;

    private Row(ConsumerRecord<byte[], byte[]> record, Event event, String error) {
        this.partition = record.partition();
        this.offset = record.offset();
        this.timestampMs = record.timestamp();
        this.value = record.value();
        this.event = event;
        this.error = error;
    }

    static Row of(ConsumerRecord<byte[], byte[]> record) {
        if (record.value() == null) {
            return new Row(record, null, null);
        }
        try {
            return new Row(record, Decoder.decode(record.value()), null);
        } catch (BadValue error) {
            return new Row(record, null, error.getMessage());
        }
    }

    /** Returns the value in hexadecimal, truncated if it is long. */
    String valueHex() {
        return Text.cutHex(value);
    }
}
