package tierctl.formatter;

import java.util.Map;

/** The fields of a record by name; the names are those of tierctl/wire/metadata/schema.py. */
final class Event {
    static final String KAFKA = "kafka";
    static final String KIP405 = "kip405";

    final String type;
    final String dialect;
    private final Map<String, Object> values;

    Event(String type, String dialect, Map<String, Object> values) {
        this.type = type;
        this.dialect = dialect;
        this.values = values;
    }

    /** Returns the key of the templates: record type and dialect. */
    String shape() {
        return type + "/" + dialect;
    }

    Object get(String name) {
        return values.get(name);
    }

    long number(String name) {
        return (Long) values.get(name);
    }

    /** Returns a field of bytes, or null. */
    byte[] bytes(String name) {
        return (byte[]) values.get(name);
    }

    /** Returns pairs of leader epoch and start offset. */
    long[][] epochs(String name) {
        return (long[][]) values.get(name);
    }
}
