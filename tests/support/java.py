"""Java programs that tests start."""

SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For those that end before their second compiler has paid for itself."""


def java(classpath: str, *words: str, heap: str = "384m") -> list[str]:
    """The command line of a short-lived one: other options, the main class and its arguments."""
    return ["java", *SHORT_LIVED, f"-Xmx{heap}", "-cp", classpath, *words]
