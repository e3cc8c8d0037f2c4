package tierctl.formatter;

import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

import org.apache.kafka.common.config.ConfigException;

/** The values of --property for the formatter; unknown names and invalid values are refused. */
final class Properties {
    private final Map<String, String> given = new HashMap<>();

    Properties(Map<String, ?> configs) {
        configs.forEach((name, value) -> given.put(name, String.valueOf(value)));
    }

    String text(String name, String otherwise) {
        return given.getOrDefault(name, otherwise);
    }

    boolean flag(String name) {
        String text = text(name, "false").toLowerCase(Locale.ROOT);
        if (!text.equals("true") && !text.equals("false")) {
            throw new ConfigException(name, given.get(name), "expected true or false");
        }
        return text.equals("true");
    }

    /** Throws ConfigException for a property that {@code style} does not have. */
    void only(String style, List<String> names) {
        for (String name : given.keySet()) {
            if (!names.contains(name)) {
                String has = names.isEmpty() ? "none" : String.join(", ", names);
                throw new ConfigException("format " + style + " has no property " + name + "; it has " + has);
            }
        }
    }

    /** Returns the value of a property and removes it, so that {@link #only} accepts it. */
    String removed(String name, String otherwise) {
        String value = given.remove(name);
        return value == null ? otherwise : value;
    }
}
