package tierctl.formatter;

/** Writes the text of `tierctl format --style json`. */
final class JsonStyle extends Style {
    private static final String EPOCHS = "segment_leader_epochs";

    @Override
    String eventLine(Row row) {
        return fill(template(Descriptions.JSON, row), row);
    }

    @Override
    String field(String name, Row row) {
        switch (name) {
            case "topic":
                return Text.json((String) row.event.get(name));
            case EPOCHS:
                return "[" + Text.joined(row.event.epochs(name), ", ", p -> "[" + p[0] + ", " + p[1] + "]") + "]";
            case "custom_metadata":
                byte[] custom = row.event.bytes(name);
                return custom == null ? "null" : '"' + Text.hex(custom) + '"';
            case "timestamp_ms":
                return String.valueOf(row.timestampMs);
            default:
                return super.field(name, row);
        }
    }

    @Override
    String otherLine(Row row) {
        String where = "{\"type\": null, \"dialect\": null, \"metadata_partition\": " + row.partition
            + ", \"metadata_offset\": " + row.offset + ", \"timestamp_ms\": " + row.timestampMs;
        return row.error == null
            ? where + "}"
            : where + ", \"error\": " + Text.json(row.error) + ", \"value\": " + Text.json(row.valueHex()) + "}";
    }
}
