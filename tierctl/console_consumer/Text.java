package tierctl.formatter;

import java.util.Arrays;
import java.util.Base64;
import java.util.function.Function;
import java.util.stream.Collectors;

/** Converts values into text that is safe to print, as tierctl/report/table.py and tierctl's formatters do. */
final class Text {
    private static final int BAD_VALUE_BYTES_MAX = 1024;
    private static final Base64.Encoder ID = Base64.getUrlEncoder().withoutPadding();
    private static final String SHORT = "\n\r\t";
    private static final String SHORT_NAMES = "nrt";
    private static final String JSON_SHORT = "\"\\\b\f\n\r\t";
    private static final String JSON_SHORT_NAMES = "\"\\bfnrt";

    private Text() {
    }

    /** Returns text on one line, with every unsafe character as an escape. */
    static String printable(String text) {
        StringBuilder out = new StringBuilder(text.length());
        text.codePoints().forEach(each -> {
            if (!isUnsafe(each)) {
                out.appendCodePoint(each);
            } else if (SHORT.indexOf(each) >= 0) {
                out.append('\\').append(SHORT_NAMES.charAt(SHORT.indexOf(each)));
            } else {
                out.append(String.format(each < 0x100 ? "\\x%02x" : each < 0x10000 ? "\\u%04x" : "\\U%08x", each));
            }
        });
        return out.toString();
    }

    private static boolean isUnsafe(int each) {
        boolean isPlain = ' ' <= each && each <= '~';
        return !isPlain && Arrays.stream(Descriptions.UNSAFE).anyMatch(range -> range[0] <= each && each <= range[1]);
    }

    /** Returns a JSON string in ASCII. */
    static String json(String text) {
        StringBuilder out = new StringBuilder(text.length() + 2).append('"');
        for (char each : text.toCharArray()) {
            if (JSON_SHORT.indexOf(each) >= 0) {
                out.append('\\').append(JSON_SHORT_NAMES.charAt(JSON_SHORT.indexOf(each)));
            } else if (each < ' ' || each > '~') {
                out.append(String.format("\\u%04x", (int) each));
            } else {
                out.append(each);
            }
        }
        return out.append('"').toString();
    }

    static String id(byte[] bytes) {
        return ID.encodeToString(bytes);
    }

    static String hex(byte[] bytes) {
        StringBuilder out = new StringBuilder(2 * bytes.length);
        for (byte each : bytes) {
            out.append(Character.forDigit(each >> 4 & 15, 16)).append(Character.forDigit(each & 15, 16));
        }
        return out.toString();
    }

    /** Returns hexadecimal text, truncated so that a damaged record prints a short line. */
    static String cutHex(byte[] bytes) {
        int rest = bytes.length - BAD_VALUE_BYTES_MAX;
        return rest <= 0
            ? hex(bytes)
            : hex(Arrays.copyOf(bytes, BAD_VALUE_BYTES_MAX)) + "...(" + rest + " more bytes)";
    }

    static String joined(long[][] pairs, String between, Function<long[], String> text) {
        return Arrays.stream(pairs).map(text).collect(Collectors.joining(between));
    }
}
