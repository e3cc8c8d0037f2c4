import java.io.File;
import java.nio.ByteBuffer;
import java.util.Arrays;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;

/**
 * Decodes every event of the metadata topic in a folder with Kafka's classes, CRCs checked: `DecodeEvents FOLDER PASSES`.
 * The last line has the median seconds of all passes but the first, which compiles.
 */
public final class DecodeEvents {
    public static void main(String[] arguments) throws Exception {
        int passes = Integer.parseInt(arguments[1]);
        double[] seconds = new double[passes];
        for (int i = 0; i < passes; i++) {
            long began = System.nanoTime();
            long events = pass(new File(arguments[0]));
            seconds[i] = (System.nanoTime() - began) / 1e9;
            System.out.printf("%d events in %.3f s%n", events, seconds[i]);
        }
        double[] warm = Arrays.copyOfRange(seconds, 1, passes);
        Arrays.sort(warm);
        System.out.printf("{\"seconds\": %.6f}%n", warm[warm.length / 2]);
    }

    private static long pass(File topic) throws Exception {
        RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
        long events = 0;
        long brokers = 0;
        for (File folder : topic.listFiles(File::isDirectory)) {
            for (File log : folder.listFiles((parent, name) -> name.endsWith(".log"))) {
                try (FileRecords records = FileRecords.open(log, false)) {
                    for (RecordBatch batch : records.batches()) {
                        batch.ensureValid();
                        for (Record record : batch) {
                            ByteBuffer value = record.value();
                            byte[] bytes = new byte[value.remaining()];
                            value.get(bytes);
                            brokers += serde.deserialize(bytes).brokerId();
                            events++;
                        }
                    }
                }
            }
        }
        // The sum is used, so that the compiler can't leave the decoding out.
        return brokers == Long.MIN_VALUE ? -1 : events;
    }
}
