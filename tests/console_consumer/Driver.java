import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.MessageFormatter;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.TimestampType;

/**
 * Calls a formatter as the console consumer does, for many settings in one JVM.
 *
 * CLASS FOLDER: `records` there has lines of partition, offset, timestamp and value (hex, or null); `settings` has
 * one line a run, name=value between \u001f; what run N wrote goes to `N.out`, or its refusal to `N.refused`.
 */
public final class Driver {
    public static void main(String[] args) throws Exception {
        Path folder = Path.of(args[1]);
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (String line : Files.readAllLines(folder.resolve("records"))) {
            records.add(record(line.split(" ")));
        }
        int run = 0;
        for (String line : Files.readAllLines(folder.resolve("settings"))) {
            MessageFormatter formatter =
                (MessageFormatter) Class.forName(args[0]).getDeclaredConstructor().newInstance();
            try {
                formatter.configure(settings(line));
            } catch (RuntimeException refusal) {
                Files.writeString(folder.resolve(run++ + ".refused"), refusal.getMessage());
                continue;
            }
            try (PrintStream out = new PrintStream(folder.resolve(run++ + ".out").toFile(), StandardCharsets.US_ASCII)) {
                records.forEach(record -> formatter.writeTo(record, out));
            }
            formatter.close();
        }
    }

    private static Map<String, String> settings(String line) {
        Map<String, String> settings = new HashMap<>();
        for (String each : line.isEmpty() ? new String[0] : line.split("\u001f")) {
            int equals = each.indexOf('=');
            settings.put(each.substring(0, equals), each.substring(equals + 1));
        }
        return settings;
    }

    private static ConsumerRecord<byte[], byte[]> record(String[] fields) {
        String hex = fields.length > 3 ? fields[3] : "";
        byte[] value = hex.equals("null") ? null : HexFormat.of().parseHex(hex);
        return new ConsumerRecord<>("__remote_log_metadata", Integer.parseInt(fields[0]), Long.parseLong(fields[1]),
            Long.parseLong(fields[2]), TimestampType.CREATE_TIME, 0, 0, null, value, new RecordHeaders(),
            Optional.empty());
    }
}
