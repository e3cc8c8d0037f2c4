"""Join a listing of a tier with the metadata, as `verify` does: `list_into_verify.py METADATA URI`."""

import json
import sys
import time

from tierctl.metadata.open import open_metadata
from tierctl.metadata.topic import topic_location
from tierctl.storage import TierSpec, open_tier
from tierctl.verify.objects import StoreAudit


def main() -> None:
    """Print the seconds from the first request to the last suspect, without reading the metadata."""
    metadata, uri = sys.argv[1:]
    state = open_metadata(topic_location("METADATA", metadata)).refresh()
    remote = open_tier(TierSpec(uri, layout="kafka"))
    began_s = time.perf_counter()
    audit = StoreAudit(state)
    orphans = sum(not audit.tally.add_listed(listed) for listed in remote.list_objects())
    suspects = sum(1 for _ in audit.suspects())
    seconds = time.perf_counter() - began_s
    assert (orphans, suspects) == (0, 0), f"{orphans} orphans, {suspects} suspects"
    print(json.dumps({"seconds": seconds}))


main()
