"""The formatter for Kafka's own console consumer: Java sources, and the jar that `make formatter` builds.

Other packages use `CLASS_NAME` and `JAR`; `JAR` exists only after `make formatter`.
"""

from pathlib import Path

CLASS_NAME = "tierctl.formatter.RemoteLogMetadataFormatter"
SOURCES = Path(__file__).parent
JAR = SOURCES / "tierctl-formatter.jar"
