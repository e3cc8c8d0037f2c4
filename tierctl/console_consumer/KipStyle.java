package tierctl.formatter;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Writes the text of `tierctl format --style kip`: KIP-405, "Message Formatter for the internal topic". */
final class KipStyle extends Style {
    private static final String VERSION = "0";

    private final boolean partition;
    private final boolean offset;
    private final boolean version;
    private final Map<String, String[]> templates;
    private final String sep;
    private final String vs;

    KipStyle(Properties properties) {
        partition = properties.flag("print.partition");
        offset = properties.flag("print.message.offset");
        version = properties.flag("print.version");
        boolean every = properties.flag("print.all.event.value.fields");
        templates = every ? Descriptions.KIP_ALL_FIELDS : Descriptions.KIP;
        sep = properties.text("sep", ",");
        vs = properties.text("vs", sep);
    }

    @Override
    String eventLine(Row row) {
        return head(row, Descriptions.KIP_TYPES.get(row.event.shape()), version)
            + fill(template(templates, row), row);
    }

    @Override
    String otherLine(Row row) {
        String value = row.error == null
            ? "null"
            : "{error:" + Text.printable(row.error) + sep + "bytes:" + row.valueHex() + "}";
        return head(row, row.error == null ? "Tombstone" : "Error", false) + value;
    }

    private String head(Row row, String type, boolean withVersion) {
        List<String> parts = new ArrayList<>();
        if (partition) {
            parts.add("partition:" + row.partition);
        }
        if (offset) {
            parts.add("message-offset:" + row.offset);
        }
        parts.add("type:" + type);
        if (withVersion) {
            parts.add("version:" + VERSION);
        }
        return String.join(sep, parts) + vs + "event-value:";
    }

    @Override
    String field(String name, Row row) {
        switch (name) {
            case "sep":
                return sep;
            case "epochs":
                return Text.joined(row.event.epochs("segment_leader_epochs"), sep,
                    pair -> "{leader-epoch:" + pair[0] + sep + "offset:" + pair[1] + "}");
            case "custom":
                byte[] custom = row.event.bytes("custom_metadata");
                return custom == null ? "null" : Text.hex(custom);
            default:
                return super.field(name, row);
        }
    }
}
