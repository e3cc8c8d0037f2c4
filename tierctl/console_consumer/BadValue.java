package tierctl.formatter;

/** A value that no record can be read from; the message is that of tierctl's CorruptInputError. */
final class BadValue extends Exception {
    private static final long serialVersionUID = 1L;
    private static final int NOWHERE = -1;

    /** The byte at which it went wrong; 0 when that is not known. */
    final int at;

    BadValue(String what, String expected, String found, int at) {
        super(what + (at == NOWHERE ? "" : " at byte " + at) + ": expected " + expected + ", found " + found);
        this.at = Math.max(at, 0);
    }

    /** An error that no byte can be blamed for. */
    static BadValue nowhere(String what, String expected, String found) {
        return new BadValue(what, expected, found, NOWHERE);
    }

    /** {@code needed} bytes are wanted where only {@code remaining} are left. */
    static BadValue truncated(String what, long needed, int at, int remaining) {
        String bytes = needed + (needed == 1 ? " byte" : " bytes");
        return new BadValue(what, bytes, Math.max(remaining, 0) + " before the end", at);
    }
}
