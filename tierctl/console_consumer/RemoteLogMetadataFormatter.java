package tierctl.formatter;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.MessageFormatter;
import org.apache.kafka.common.config.ConfigException;

/**
 * The formatter that KIP-405 describes, for Kafka's console consumer reading __remote_log_metadata:
 *
 * <pre>kafka-console-consumer.sh --formatter tierctl.formatter.RemoteLogMetadataFormatter --property ...</pre>
 *
 * <p>Properties: {@code format} is kip (the default), json or kafka; format kip has print.partition,
 * print.message.offset, print.version, print.all.event.value.fields (false), sep (a comma) and vs (as sep);
 * format kafka has kafka.version, such as 3.9 (the latest known).
 * The text equals that of {@code tierctl format --style <format>}, byte for byte, in UTF-8 whatever the locale.
 * Tombstones and values that do not decode have one line each; the records after them are printed as well.
 */
public final class RemoteLogMetadataFormatter implements MessageFormatter {
    private static final Map<String, List<String>> PROPERTIES = Map.of(
        "kip", List.of(
            "print.partition", "print.message.offset", "print.version", "print.all.event.value.fields", "sep", "vs"),
        "kafka", List.of("kafka.version"));

    private Style style = new KipStyle(new Properties(Map.of()));

    @Override
    public void configure(Map<String, ?> configs) {
        Properties properties = new Properties(configs);
        String format = properties.removed("format", "kip");
        properties.only(format, PROPERTIES.getOrDefault(format, List.of()));
        style = styleOf(format, properties);
    }

    private static Style styleOf(String format, Properties properties) {
        switch (format) {
            case "kip":
                return new KipStyle(properties);
            case "json":
                return new JsonStyle();
            case "kafka":
                return new KafkaStyle(properties);
            default:
                throw new ConfigException("format", format, "expected kip, json or kafka");
        }
    }

    @Override
    public void writeTo(ConsumerRecord<byte[], byte[]> record, PrintStream output) {
        byte[] line = (style.line(Row.of(record)) + '\n').getBytes(StandardCharsets.UTF_8);
        output.write(line, 0, line.length);
    }
}
