package tierctl.formatter;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.regex.Pattern;

/**
 * Decodes the value of a record, in the dialect that takes all of its bytes. The choice and its reasons are those of
 * tierctl/wire/metadata/values.py.
 */
final class Decoder {
    private static final int FRAME_VERSION = 1;
    private static final int RECORD_VERSION = 0;
    private static final Pattern LEGAL_TOPIC = Pattern.compile("(?!\\.{1,2}$)[a-zA-Z0-9._-]{1,249}");

    private Decoder() {
    }

    static Event decode(byte[] value) throws BadValue {
        BadValue asKafka;
        try {
            return read(value, Event.KAFKA, Descriptions.KAFKA);
        } catch (BadValue error) {
            asKafka = error;
        }
        Event event;
        try {
            event = read(value, Event.KIP405, Descriptions.KIP405);
        } catch (BadValue asKip405) {
            throw morePlausible(value, asKafka, asKip405);
        }
        if (isCutSegment(value)) {
            throw asKafka;
        }
        return event;
    }

    private static Event read(byte[] value, String dialect, List<Schema> schemas) throws BadValue {
        Bytes in = new Bytes(value);
        boolean isKafka = dialect.equals(Event.KAFKA);
        if (isKafka) {
            expect(in, "metadata record", "frame version", FRAME_VERSION, "frame version ");
        }
        String word = isKafka ? "apiKey" : "type";
        int at = in.at;
        long apiKey = in.uvarint(word);
        if (apiKey >= schemas.size()) {
            String expected = word + " 0 to " + (schemas.size() - 1);
            throw new BadValue("metadata record", expected, word + " " + apiKey, at);
        }
        Schema schema = schemas.get((int) apiKey);
        expect(in, schema.name, "record version", RECORD_VERSION, "version ");
        return RecordReader.read(in, schema, dialect);
    }

    private static void expect(Bytes in, String what, String read, int version, String word) throws BadValue {
        int at = in.at;
        long found = in.uvarint(read);
        if (found != version) {
            throw new BadValue(what, word + version, word + found, at);
        }
    }

    private static BadValue morePlausible(byte[] value, BadValue asKafka, BadValue asKip405) {
        boolean gotFurther = hasName(value) && asKip405.at > asKafka.at;
        return gotFurther || value.length > 0 && value[0] == 0 ? asKip405 : asKafka;
    }

    private static boolean hasName(byte[] value) {
        if (value.length < 4) {
            return false;
        }
        int length = (value[2] & 0xff) << 8 | value[3] & 0xff;
        return length <= value.length - 4
            && LEGAL_TOPIC.matcher(new String(value, 4, length, StandardCharsets.ISO_8859_1)).matches();
    }

    /** Returns true if a value that decodes as a kip405 update is a truncated kafka segment record. */
    private static boolean isCutSegment(byte[] value) {
        if (!Arrays.equals(value, 0, 3, new byte[] {1, 0, 0}, 0, 3)) {
            return false;
        }
        Bytes in = new Bytes(value);
        in.at = 3;
        long partition;
        try {
            partition = in.uvarint("length") + in.at - 1 + 16;
        } catch (BadValue notALength) {
            return false;
        }
        long tags = partition + 4;
        long segmentTags = tags + 1 + 16;
        long end = segmentTags + 1 + 8;
        if (end >= value.length || value.length >= end + 8) {
            return false;
        }
        if (value[(int) partition] != 0 || value[(int) tags] != 0 || value[(int) segmentTags] != 0) {
            return false;
        }
        int left = (int) (value.length - end);
        long difference = unsigned(value, (int) end, left) - unsigned(value, (int) segmentTags + 1, left);
        return difference == 0 || difference == 1;
    }

    private static long unsigned(byte[] value, int from, int width) {
        long number = 0;
        for (int i = from; i < from + width; i++) {
            number = number << 8 | value[i] & 0xff;
        }
        return number;
    }
}
