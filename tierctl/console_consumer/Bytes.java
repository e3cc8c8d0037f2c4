package tierctl.formatter;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharsetDecoder;
import java.nio.charset.CoderResult;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** A value and a position in it. Every length is checked against the remaining bytes before it is used. */
final class Bytes {
    private static final int VARINT_BYTES_MAX = 5;
    private static final int VARINT_BITS = 32;

    final byte[] value;
    int at;

    Bytes(byte[] value) {
        this.value = value;
    }

    int remaining() {
        return value.length - at;
    }

    /** Reads an unsigned varint of at most 32 bits, which must have its shortest form. */
    long uvarint(String what) throws BadValue {
        int start = at;
        long number = 0;
        for (int count = 0; count < VARINT_BYTES_MAX; count++) {
            if (at >= value.length) {
                throw BadValue.truncated(what, 1, at, 0);
            }
            int each = value[at++] & 0xff;
            number |= (long) (each & 0x7f) << (7 * count);
            if (each < 0x80) {
                if (number >> VARINT_BITS != 0) {
                    break;
                }
                if (each == 0 && count > 0) {
                    throw new BadValue(what, "the shortest form of the number", (count + 1) + " bytes", start);
                }
                return number;
            }
        }
        throw new BadValue(what, "a number of 32 bits", "a longer one", start);
    }

    /** Reads a big-endian number of {@code width} bytes; the caller has checked that they exist. */
    long fixed(int width) {
        long number = value[at++];
        for (int i = 1; i < width; i++) {
            number = number << 8 | value[at++] & 0xff;
        }
        return number;
    }

    byte[] take(long length, String what) throws BadValue {
        if (length > remaining()) {
            throw BadValue.truncated(what, length, at, remaining());
        }
        at += (int) length;
        return Arrays.copyOfRange(value, at - (int) length, at);
    }

    /** Reads text in UTF-8; malformed text is an error. */
    String text(long length, String what) throws BadValue {
        int start = at;
        byte[] raw = take(length, what);
        CharsetDecoder decoder = StandardCharsets.UTF_8.newDecoder();
        ByteBuffer in = ByteBuffer.wrap(raw);
        CharBuffer out = CharBuffer.allocate(raw.length);
        CoderResult result = decoder.decode(in, out, true);
        if (result.isError()) {
            String found = String.format("byte 0x%02x", raw[in.position()] & 0xff);
            throw new BadValue(what, "UTF-8", found, start + in.position());
        }
        return out.flip().toString();
    }
}
