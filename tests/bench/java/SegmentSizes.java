package org.apache.kafka.server.log.remote.metadata.storage;

import java.io.File;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Consumer;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;

/**
 * Prints the segments and bytes of each topic from the metadata topic in a folder, as `tierctl segments --sizes`
 * does, with the classes by which a broker follows that topic: FileRecords, the serde, RemotePartitionMetadataStore
 * and RemoteLogMetadataCache. It is in their package, since the store lists segments only to classes of it.
 *
 * With a number after the folder, it decodes the events so many times, and prints how many it decoded.
 */
public final class SegmentSizes {
    private final RemotePartitionMetadataStore store = new RemotePartitionMetadataStore();
    private final RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
    private final Set<TopicIdPartition> partitions = new HashSet<>();

    public static void main(String[] arguments) throws Exception {
        SegmentSizes sizes = new SegmentSizes();
        if (arguments.length == 1) {
            sizes.read(arguments[0], sizes::follow);
            sizes.print();
            return;
        }
        long[] decoded = new long[1];
        for (int pass = 0; pass < Integer.parseInt(arguments[1]); pass++) {
            sizes.read(arguments[0], event -> decoded[0]++);
        }
        System.out.println(decoded[0]);
    }

    private void read(String topic, Consumer<RemoteLogMetadata> receiver) throws Exception {
        File[] folders = new File(topic).listFiles(File::isDirectory);
        Arrays.sort(folders);
        for (File folder : folders) {
            File[] logs = folder.listFiles((parent, name) -> name.endsWith(".log"));
            Arrays.sort(logs);
            for (File log : logs) {
                read(log, receiver);
            }
        }
    }

    private void read(File log, Consumer<RemoteLogMetadata> receiver) throws Exception {
        try (FileRecords records = FileRecords.open(log, false)) {
            for (RecordBatch batch : records.batches()) {
                batch.ensureValid();
                for (Record record : batch) {
                    ByteBuffer value = record.value();
                    byte[] bytes = new byte[value.remaining()];
                    value.get(bytes);
                    receiver.accept(serde.deserialize(bytes));
                }
            }
        }
    }

    private void follow(RemoteLogMetadata event) {
        TopicIdPartition partition = event.topicIdPartition();
        if (partitions.add(partition)) {
            store.maybeLoadPartition(partition);
            store.markInitialized(partition);
        }
        store.handleRemoteLogMetadata(event);
    }

    private void print() throws Exception {
        // By topic: partitions, finished segments and their bytes, copying segments, segments that are deleted.
        Map<String, long[]> topics = new TreeMap<>();
        for (TopicIdPartition partition : partitions) {
            long[] sums = topics.computeIfAbsent(partition.topic(), topic -> new long[5]);
            Iterator<RemoteLogSegmentMetadata> segments = store.listRemoteLogSegments(partition);
            if (segments.hasNext()) {
                sums[0]++;
            }
            while (segments.hasNext()) {
                add(segments.next(), sums);
            }
        }
        System.out.println("topic,partitions,segments,log_bytes,copying_segments,deleting_segments");
        topics.forEach((topic, sums) -> System.out.printf(
            "%s,%d,%d,%d,%d,%d%n", topic, sums[0], sums[1], sums[2], sums[3], sums[4]));
    }

    private static void add(RemoteLogSegmentMetadata segment, long[] sums) {
        switch (segment.state()) {
            case COPY_SEGMENT_FINISHED:
                sums[1]++;
                sums[2] += segment.segmentSizeInBytes();
                break;
            case COPY_SEGMENT_STARTED:
                sums[3]++;
                break;
            case DELETE_SEGMENT_STARTED:
                sums[4]++;
                break;
            default:
                break;
        }
    }
}
