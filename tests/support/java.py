"""Java programs that tests start."""

SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options for short programs, which end before the second JIT compiler is useful."""

ARCHIVED = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
"""Options for programs with an archive of loaded classes, which the JVM does without if it does not fit."""


def java(classpath: str, *words: str, heap: str = "384m") -> list[str]:
    """Return the command line of a short program: other options, the main class and its arguments."""
    return ["java", *SHORT_LIVED, f"-Xmx{heap}", "-cp", classpath, *words]
