package tierctl.formatter;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Reads the body of one record by its schema; the error texts equal those of tierctl/wire/metadata/codec.py. */
final class RecordReader {
    private static final int STRING_BYTES_MAX = 0x7fff;
    private static final byte[] TRUE = {1};

    private final Bytes in;
    private final Schema schema;
    private final Map<String, Object> values = new HashMap<>();
    private final Map<String, Integer> positions = new HashMap<>();

    private RecordReader(Bytes in, Schema schema) {
        this.in = in;
        this.schema = schema;
    }

    /** Returns the event that takes all bytes from the current position to the end. */
    static Event read(Bytes in, Schema schema, String dialect) throws BadValue {
        RecordReader reader = new RecordReader(in, schema);
        reader.struct(schema.body);
        if (in.remaining() != 0) {
            throw new BadValue(schema.name, "the end", in.remaining() + " more bytes", in.at);
        }
        Event event = new Event(schema.type, dialect, reader.values);
        for (Schema.Rule rule : schema.rules) {
            if (!rule.holds(event)) {
                throw reader.broken(rule, event);
            }
        }
        return event;
    }

    private BadValue broken(Schema.Rule rule, Event event) {
        Integer position = positions.get(rule.field);
        return position == null
            ? BadValue.nowhere(rule.field, rule.expected, rule.found(event))
            : new BadValue(rule.field, rule.expected, rule.found(event), position);
    }

    private void struct(Schema.Struct struct) throws BadValue {
        List<Schema.Field> run = new ArrayList<>();
        for (Schema.Field field : struct.fields) {
            if (field.kind.width > 0) {
                run.add(field);
                continue;
            }
            fixed(run);
            run.clear();
            variable(field);
        }
        fixed(run);
        if (schema.flexible) {
            tags(struct.flags);
        }
    }

    /** Reads consecutive fields of fixed width, after checking that the bytes of all of them exist. */
    private void fixed(List<Schema.Field> run) throws BadValue {
        int end = in.at;
        for (Schema.Field field : run) {
            if (end + field.kind.width > in.value.length) {
                throw BadValue.truncated(field.name, field.kind.width, end, in.value.length - end);
            }
            end += field.kind.width;
        }
        for (Schema.Field field : run) {
            positions.putIfAbsent(field.name, in.at);
            values.put(field.name, fixed(field));
        }
    }

    private Object fixed(Schema.Field field) throws BadValue {
        if (field.kind == Schema.Kind.UUID) {
            return in.take(field.kind.width, field.name);
        }
        int at = in.at;
        long number = in.fixed(field.kind.width);
        if (field.states.isEmpty()) {
            return number;
        }
        if (number < 0 || number >= field.states.size()) {
            throw new BadValue(field.name, "0 to " + (field.states.size() - 1), String.valueOf(number), at);
        }
        return field.states.get((int) number);
    }

    private void variable(Schema.Field field) throws BadValue {
        switch (field.kind) {
            case STRUCT:
                struct(field.inner);
                break;
            case ARRAY:
                values.put(field.name, epochs(field));
                break;
            case STRING:
                values.put(field.name, string(field.name));
                break;
            default:
                Long length = length(field.name, 4);
                values.put(field.name, length == null ? null : in.take(length, field.name));
        }
    }

    private String string(String name) throws BadValue {
        int at = in.at;
        Long length = length(name, 2);
        if (length == null) {
            throw new BadValue(name, "a value", "null", at);
        }
        if (length > STRING_BYTES_MAX) {
            throw new BadValue(name, "at most " + STRING_BYTES_MAX + " bytes", String.valueOf(length), at);
        }
        return in.text(length, name);
    }

    /**
     * Returns a length, or null. A compact length is encoded as the length plus one; other lengths have
     * {@code width} bytes.
     */
    private Long length(String name, int width) throws BadValue {
        String what = "length of " + name;
        int at = in.at;
        if (schema.flexible) {
            long raw = in.uvarint(what);
            return raw == 0 ? null : raw - 1;
        }
        if (in.remaining() < width) {
            throw BadValue.truncated(what, width, at, in.remaining());
        }
        long length = in.fixed(width);
        if (length < -1) {
            throw new BadValue(what, "-1 or more", String.valueOf(length), at);
        }
        return length == -1 ? null : length;
    }

    private long[][] epochs(Schema.Field field) throws BadValue {
        int at = in.at;
        Long count = length(field.name, 4);
        if (count == null) {
            throw new BadValue(field.name, "an array", "null", at);
        }
        int width = field.inner.minWidth(schema.flexible);
        if (count * width > in.remaining()) {
            String expected = "at most " + in.remaining() / width + " elements";
            throw new BadValue(field.name, expected, String.valueOf(count), at);
        }
        long[][] found = new long[count.intValue()][field.inner.fields.size()];
        for (long[] element : found) {
            struct(field.inner);
            for (int i = 0; i < element.length; i++) {
                element[i] = (Long) values.get(field.inner.fields.get(i).name);
            }
        }
        return found;
    }

    /** Reads the tagged fields: known tags become values, unknown tags are skipped but must be well formed. */
    private void tags(List<Schema.Flag> flags) throws BadValue {
        for (Schema.Flag flag : flags) {
            values.put(flag.name, false);
        }
        long count = in.uvarint("number of tagged fields");
        long previous = -1;
        for (long i = 0; i < count; i++) {
            int at = in.at;
            long tag = in.uvarint("tag");
            if (tag <= previous) {
                throw new BadValue("tag", "a tag above " + previous, String.valueOf(tag), at);
            }
            byte[] raw = in.take(in.uvarint("size of tag " + tag), "tag " + tag);
            for (Schema.Flag flag : flags) {
                if (flag.tag == tag) {
                    values.put(flag.name, flag(flag, raw, at));
                }
            }
            previous = tag;
        }
    }

    private static boolean flag(Schema.Flag flag, byte[] raw, int at) throws BadValue {
        if (raw.length != TRUE.length) {
            throw new BadValue(flag.name, "1 byte", raw.length + " bytes", at);
        }
        return raw[0] != 0;
    }
}
