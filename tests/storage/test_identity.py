"""The tier is recognised by the objects that this user may see."""

import pytest
from tierctl.errors import AuthenticationError
from tierctl.storage.identity import has_objects_of_any

from tests.storage.memory import MemoryStorage
from tests.storage.segments import data_in, metadata_of


def test_a_part_of_the_tier_that_is_hidden_from_this_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    segment, tier = metadata_of(), MemoryStorage()
    tier.copy_log_segment_data(segment, data_in(tmp_path_factory.mktemp("source")))
    refused = AuthenticationError("no")
    tier.failing.errors = [refused]
    assert has_objects_of_any(tier, [segment, segment])
    tier.failing.errors = [refused, refused]
    with pytest.raises(AuthenticationError):
        has_objects_of_any(tier, [segment, segment])
