package org.apache.kafka.common.utils;

/** The name that Exit had before Kafka 4.4, for tools that were compiled against 4.3. */
public class Exit extends org.apache.kafka.common.utils.internals.Exit {
}
