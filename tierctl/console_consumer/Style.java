package tierctl.formatter;

import java.util.Map;

/**
 * The text of a record. {@code Descriptions} has a template for each record type and dialect, which the build
 * generates from the formatters of `tierctl format`: literals at even indexes, names of fields at odd ones.
 */
abstract class Style {
    /** Returns the line of a record, without the line end. */
    final String line(Row row) {
        return row.event == null ? otherLine(row) : eventLine(row);
    }

    /** Returns the line of a tombstone or of a record that does not decode. */
    abstract String otherLine(Row row);

    abstract String eventLine(Row row);

    final String fill(String[] template, Row row) {
        StringBuilder out = new StringBuilder();
        for (int i = 0; i < template.length; i++) {
            out.append(i % 2 == 0 ? template[i] : field(template[i], row));
        }
        return out.toString();
    }

    /** Returns the text of a field; styles override it for fields that they write differently. */
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
