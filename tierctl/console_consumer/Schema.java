package tierctl.formatter;

import java.util.List;

/**
 * One record as data. The instances are in {@code Descriptions}, which the build writes from
 * tierctl/wire/schema.py: there is no second description of the bytes.
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

    /** A width of 0 is one that the record says itself. */
    enum Kind {
        INT8(1), INT32(4), INT64(8), UUID(16), STRING(0), NULLABLE_BYTES(0), STRUCT(0), ARRAY(0);

        final int width;

        Kind(int width) {
            this.width = width;
        }
    }

    /** Fields in wire order, and the tagged bools that may follow them. */
    static final class Struct {
        final List<Field> fields;
        final List<Flag> flags;

        Struct(List<Field> fields, List<Flag> flags) {
            this.fields = fields;
            this.flags = flags;
        }

        /** The fewest bytes this struct of fixed fields has. */
        int minWidth(boolean flexible) {
            return fields.stream().mapToInt(field -> field.kind.width).sum() + (flexible ? 1 : 0);
        }
    }

    /** {@code states} are the names an INT8 stands for; {@code inner} is of a struct, or an array's element. */
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

    /** A tagged bool. */
    static final class Flag {
        final String name;
        final long tag;

        Flag(String name, long tag) {
            this.name = name;
            this.tag = tag;
        }
    }

    /** {@code field} is not below {@code least}, or the field {@code leastField}; with neither, not empty. */
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

        /** The field's value as the error says it; an empty array as Python prints one. */
        String found(Event event) {
            return least == null && leastField == null ? "()" : String.valueOf(event.number(field));
        }
    }
}
