"""Writes on a condition: that it failed, and that the store may lack conditions."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from botocore.exceptions import ClientError

from tierctl.errors import ConditionsRefused, StoreRefused, TierctlError
from tierctl.storage.stores.s3.errors import NOT_DONE_HERE, PRECONDITION_FAILED, code_of, names_checksums

_MAY_LACK = NOT_DONE_HERE | {"InvalidArgument", "InvalidRequest"}
"""Error codes of servers that do not know a header of the request."""


class ConditionFailed(Exception):  # noqa: N818
    """The condition of a conditional write did not hold; never raised out of this package."""


@contextmanager
def conditional(condition: Mapping[str, str]) -> Iterator[None]:
    """Raise `ConditionFailed` for status 412, and for status 409, which S3 returns for concurrent writes.

    Raise ConditionsRefused if the store may lack the condition.
    """
    try:
        yield
    except TierctlError as e:
        code = code_of(e.__cause__) if isinstance(e.__cause__, ClientError) else ""
        if code in PRECONDITION_FAILED:
            raise ConditionFailed from e
        if condition and isinstance(e, StoreRefused) and code in _MAY_LACK and not names_checksums(e.message):
            raise ConditionsRefused(e.message, hint=e.hint) from e
        raise
