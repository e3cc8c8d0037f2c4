package tierctl.formatter;

import java.util.List;

/**
 * The layout of one record. The instances are in {@code Descriptions}, which the build generates from
 * tierctl/wire/metadata/schema.py, so that the layout is described only once.
 */
final class Schema {
    final int apiKey;
    final String name;
    final String type;
    final boolean flexible;
    final Struct body;
    final List<Rule> rules;

    Schema(int apiKey, String name, String type, boolean flexible, Struct body, List<Rule> rules) {
        this.apiKey = apiKey;
        this.name = name;
        this.type = type;
        this.flexible = flexible;
        this.body = body;
        this.rules = rules;
    }

    /** A kind of field; a width of 0 means that the record contains the length. */
    enum Kind {
        INT8(1), INT32(4), INT64(8), UUID(16), STRING(0), NULLABLE_BYTES(0), STRUCT(0), ARRAY(0);

        final int width;

        Kind(int width) {
            this.width = width;
        }
    }

    /** Fields in wire order, and the tagged booleans that may follow them. */
    static final class Struct {
        final List<Field> fields;
        final List<Flag> flags;

        Struct(List<Field> fields, List<Flag> flags) {
            this.fields = fields;
            this.flags = flags;
        }

        /** Returns the smallest number of bytes of this struct, all of whose fields have a fixed width. */
        int minWidth(boolean flexible) {
            return fields.stream().mapToInt(field -> field.kind.width).sum() + (flexible ? 1 : 0);
        }
    }

    /**
     * A field. {@code states} are the names of the values of an INT8; {@code inner} is the layout of a struct or
     * of the elements of an array.
     */
    static final class Field {
        final String name;
        final Kind kind;
        final List<String> states;
        final Struct inner;

        Field(String name, Kind kind, List<String> states, Struct inner) {
            this.name = name;
            this.kind = kind;
            this.states = states;
            this.inner = inner;
        }
    }

    /** A tagged boolean. */
    static final class Flag {
        final String name;
        final long tag;

        Flag(String name, long tag) {
            this.name = name;
            this.tag = tag;
        }
    }

    /**
     * A condition: {@code field} is at least {@code least}, or at least the field {@code leastField}. With
     * neither, {@code field} is an array that is not empty.
     */
    static final class Rule {
        final String field;
        final String expected;
        final Long least;
        final String leastField;

        Rule(String field, String expected, Long least, String leastField) {
            this.field = field;
            this.expected = expected;
            this.least = least;
            this.leastField = leastField;
        }

        boolean holds(Event event) {
            if (least != null) {
                return event.number(field) >= least;
            }
            return leastField == null
                ? event.epochs(field).length > 0
                : event.number(field) >= event.number(leastField);
        }

        /** Returns the field's value for the error text; an empty array is printed as Python does. */
        String found(Event event) {
            return least == null && leastField == null ? "()" : String.valueOf(event.number(field));
        }
    }
}
