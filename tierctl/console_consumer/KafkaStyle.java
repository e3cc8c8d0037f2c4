package tierctl.formatter;

import java.util.Map;
import java.util.TreeMap;

import org.apache.kafka.common.config.ConfigException;

/** Writes the text of `tierctl format --style kafka`: the lines of the formatter of one version of Kafka. */
final class KafkaStyle extends Style {
    private final Map<String, String[]> templates;

    KafkaStyle(Properties properties) {
        String version = properties.text("kafka.version", Descriptions.LATEST_KAFKA);
        templates = Descriptions.KAFKA_TEXTS.get(version.replaceFirst("^(\\d+\\.\\d+)\\.\\d{1,3}$", "$1"));
        if (templates == null) {
            String known = String.join(", ", new java.util.TreeSet<>(Descriptions.KAFKA_TEXTS.keySet()));
            throw new ConfigException("kafka.version", version, "expected one of " + known);
        }
    }

    @Override
    String eventLine(Row row) {
        return fill(template(templates, row), row);
    }

    @Override
    String field(String name, Row row) {
        switch (name) {
            case "epochs":
                return byEpoch(row.event.epochs("segment_leader_epochs"));
            case "optional":
                byte[] custom = row.event.bytes("custom_metadata");
                return custom == null
                    ? "Optional.empty"
                    : "Optional[CustomMetadata{" + custom.length + " bytes}]";
            case "txn_index_empty":
                return String.valueOf(Boolean.TRUE.equals(row.event.get(name)));
            default:
                return super.field(name, row);
        }
    }

    /** Returns the text of a map: sorted by epoch, with the last entry of each epoch. */
    private static String byEpoch(long[][] pairs) {
        Map<Long, Long> epochs = new TreeMap<>();
        for (long[] pair : pairs) {
            epochs.put(pair[0], pair[1]);
        }
        String text = epochs.toString();
        return text.substring(1, text.length() - 1);
    }

    @Override
    String otherLine(Row row) {
        String head = "partition: " + row.partition + ", offset: " + row.offset + ", ";
        return row.error == null
            ? head + "value: null"
            : head + "error: " + Text.printable(row.error) + ", bytes: " + row.valueHex();
    }
}
