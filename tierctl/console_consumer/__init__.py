"""The formatter for Kafka's own console consumer: Java sources, and the jar once `make formatter` made it."""

from pathlib import Path

CLASS_NAME = "tierctl.formatter.RemoteLogMetadataFormatter"
SOURCES = Path(__file__).parent
JAR = SOURCES / "tierctl-formatter.jar"
