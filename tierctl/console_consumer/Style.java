package tierctl.formatter;

import java.util.Map;

/**
 * How a record is written. What a record of a type and dialect looks like is a template of {@code Descriptions},
 * which the build writes from the formatters of `tierctl format`: literals at even places, names of fields at odd ones.
 */
abstract class Style {
    /** The record's line, without its end. */
    final String line(Row row) {
        return row.event == null ? otherLine(row) : eventLine(row);
    }

    /** The line of a tombstone or a bad record. */
    abstract String otherLine(Row row);

    abstract String eventLine(Row row);

    final String fill(String[] template, Row row) {
        StringBuilder out = new StringBuilder();
        for (int i = 0; i < template.length; i++) {
            out.append(i % 2 == 0 ? template[i] : field(template[i], row));
        }
        return out.toString();
    }

    /** A field as every style writes it that has no way of its own. */
    String field(String name, Row row) {
        switch (name) {
            case "metadata_partition":
                return String.valueOf(row.partition);
            case "metadata_offset":
                return String.valueOf(row.offset);
            case "type":
                return row.event.type;
            case "dialect":
                return row.event.dialect;
            case "topic":
                return Text.printable((String) row.event.get(name));
            case "topic_id":
            case "segment_id":
                return Text.id(row.event.bytes(name));
            default:
                return String.valueOf(row.event.get(name));
        }
    }

    static String[] template(Map<String, String[]> templates, Row row) {
        return templates.get(row.event.shape());
    }
}
