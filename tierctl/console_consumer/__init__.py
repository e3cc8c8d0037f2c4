"""The formatter for Kafka's own console consumer: Java sources, and the jar that `make formatter` builds.

Other packages use `CLASS_NAME` and `find_jar`.
"""

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tierctl.errors import NotFoundError
from tierctl.files import is_file

CLASS_NAME = "tierctl.formatter.RemoteLogMetadataFormatter"
SOURCES = Path(__file__).parent
JAR = SOURCES / "tierctl-formatter.jar"
"""Where `make formatter` puts the jar, and where a wheel has it."""


def find_jar() -> Path:
    """Return the jar of this installation, or of the clone that it was installed from.

    `pip install .` copies the package before `make formatter` builds the jar in the clone. pip stores the
    path of the clone in direct_url.json (PEP 610). Raise NotFoundError if neither has it.
    """
    candidates = [JAR]
    try:
        stated = json.loads(distribution("tierctl").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        stated = {}
    url = urlsplit(stated.get("url", ""))
    if url.scheme == "file":
        candidates.append(Path(unquote(url.path)) / "tierctl" / SOURCES.name / JAR.name)
    found = next(filter(is_file, candidates), None)
    if found is None:
        raise NotFoundError(
            "the jar of the formatter was not built",
            hint="build it with 'make formatter' in the clone that tierctl was installed from; 'make wheel' "
            "then includes it",
        )
    return found
