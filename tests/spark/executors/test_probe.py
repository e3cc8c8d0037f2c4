"""The probe of executors sends a request to each store, so that a refusal comes before any event."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tierctl.apply.run_context import Stop
from tierctl.errors import AuthenticationError, StoreRefused, TierctlError
from tierctl.spark.executors.apply_engine import SideEffectContextSpec, SparkEngine
from tierctl.storage.open_tier import TierSpec
from tierctl.storage.remote_storage_manager import RetrySettings

from tests.support.lacking_store import BUCKET, Lack, LackingStore


class Here:
    """The executors of a session, which do their work in this process."""

    session = SimpleNamespace(conf=SimpleNamespace(get=lambda _name, default: default))

    def probe(self, check: Callable[[], None], **_more: Any) -> int:
        check()
        return 1


@pytest.mark.parametrize("is_source", [False, True])
@pytest.mark.parametrize(
    ("lack", "error"), [(Lack.LISTINGS, StoreRefused), (Lack.LISTINGS_FORBIDDEN, AuthenticationError)]
)
def test_a_store_that_refuses_ends_the_run_before_it_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, lack: Lack, error: type[TierctlError], is_source: bool
) -> None:
    with LackingStore([lack]) as store:
        store.found(monkeypatch)
        retry = RetrySettings(backoff_ms=1, backoff_max_ms=1)
        refusing = TierSpec(f"s3://{BUCKET}/tier", layout="kafka", retry=retry)
        folder = TierSpec(tmp_path.as_uri(), layout="kafka", retry=retry)
        spec = SideEffectContextSpec(
            remote=folder if is_source else refusing, source=refusing if is_source else None
        )
        engine = SparkEngine(Here(), spec, stop=Stop(), title="copy")  # type: ignore[arg-type]
        with pytest.raises(error) as raised:
            engine.ready()
        assert raised.value.hint
        assert store.count("GET") == 1
