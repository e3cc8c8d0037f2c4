"""meta.properties: the cluster id in the versions of the file."""

import pytest
from tierctl.errors import CorruptInputError
from tierctl.wire.files.checkpoints import read_cluster_id

VERSION_1 = b"#\n#Sun Nov 22 13:45:19 UTC 2026\nnode.id=7\nversion=1\ncluster.id=dGllcmN0bC10ZXN0cy0wMQ\n"
VERSION_0 = b"broker.id=0\r\nversion=0\r\ncluster.id=Mk3OEYBSD34fcwNTJENDM2Qk\r\n"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (VERSION_1, "dGllcmN0bC10ZXN0cy0wMQ"),
        (VERSION_0, "Mk3OEYBSD34fcwNTJENDM2Qk"),
        (b"", None),
        (b"cluster.id=\n", None),
        (b"version=1\nnode.id=7\n", None),
    ],
)
def test_cluster_id(data: bytes, expected: str | None) -> None:
    assert read_cluster_id(data) == expected


def test_no_properties_file() -> None:
    with pytest.raises(CorruptInputError, match="line 1"):
        read_cluster_id(b"cluster.id=\\u12\n")
