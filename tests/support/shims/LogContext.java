package org.apache.kafka.common.utils;

/** The name that LogContext had before Kafka 4.4, for classes that were compiled against 4.3. */
public class LogContext extends org.apache.kafka.common.utils.internals.LogContext {
    public LogContext(String prefix) {
        super(prefix);
    }

    public LogContext() {
        super();
    }
}
