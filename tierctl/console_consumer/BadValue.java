package tierctl.formatter;

/** A value that does not decode; the message equals that of tierctl's CorruptInputError. */
final class BadValue extends Exception {
    private static final long serialVersionUID = 1L;
    private static final int NOWHERE = -1;

    /** The position of the first wrong byte; 0 if it is not known. */
    final int at;

    BadValue(String what, String expected, String found, int at) {
        super(what + (at == NOWHERE ? "" : " at byte " + at) + ": expected " + expected + ", found " + found);
        this.at = Math.max(at, 0);
    }

    /** Creates an error without a position. */
    static BadValue nowhere(String what, String expected, String found) {
        return new BadValue(what, expected, found, NOWHERE);
    }

    /** Creates the error for a field of {@code needed} bytes of which only {@code remaining} exist. */
    static BadValue truncated(String what, long needed, int at, int remaining) {
        String bytes = needed + (needed == 1 ? " byte" : " bytes");
        return new BadValue(what, bytes, Math.max(remaining, 0) + " before the end", at);
    }
}
