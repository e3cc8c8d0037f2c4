"""List long prefixes with several threads: each thread lists a span of keys; pages are yielded in key order.

A page has at most 1,000 objects and names the next page, so that a single thread spends most of its time
waiting for the server. A span has all keys after one boundary up to the next boundary. The boundaries are
names of folders, but every key is in exactly one span whatever the boundaries are: a folder that is created
or deleted meanwhile, or that the first page did not show, makes a span longer and omits no key.

The library obstore, which also lists fast, cannot replace this: it changes or refuses keys with an empty or a
relative part (`a//b`, `a/`, `a/../b`), and a key that is missing from a listing counts as a missing object.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, islice, pairwise
from typing import Any, Final, Generic, TypeVar

from tierctl.errors import RemoteStorageError
from tierctl.storage.stores.s3.bulk import PAGE_MAX

SPANS_AT_ONCE: Final = 8
PAGES_AHEAD: Final = 8
"""Maximum number of fetched pages per span that wait in memory."""
PAGES_PER_SPAN: Final = 8
"""Estimated pages per span; each span costs half a page more, which the server lists beyond its end."""

Page = TypeVar("Page")
Objects = Sequence[Mapping[str, Any]]
"""Consecutive objects of a listing: `Key`, `Size` and `LastModified` of each."""
Paginate = Callable[..., Iterable[Any]]
"""The method `paginate` of boto3's paginator for list_objects_v2."""


class _NotInOrderError(RemoteStorageError):
    """A page does not have the keys after the requested key in key order."""


def object_pages(paginate: Paginate, bucket: str, prefix: str) -> Iterator[Objects]:
    """Yield every object whose key begins with `prefix`, in pages in key order.

    If the server ignores the requested start of a listing, or does not list in key order, one page after the
    other is requested, in the server's order. Raise RemoteStorageError if the server first lists in key order
    and later does not.
    """
    listing = _Listing(paginate, bucket, prefix)
    pages = listing.pages("")
    first = next(pages, ())
    yield first
    keys = [each["Key"] for each in first]
    others = in_order(iter([pages]))
    if len(keys) == PAGE_MAX and _is_by_key("", keys) and (bounds := listing.folders_after(keys)):
        in_spans = in_order(listing.span(*span) for span in pairwise([keys[-1], *bounds, None]))
        # The first page shows whether the server respects the requested start.
        with suppress(_NotInOrderError):
            others = chain([next(in_spans, ())], in_spans)
    yield from others


class _Listing:
    """The requests that list the keys of a bucket with a given prefix."""

    def __init__(self, paginate: Paginate, bucket: str, prefix: str) -> None:
        self._paginate = paginate
        self._bucket = bucket
        self._prefix = prefix

    def pages(self, after: str) -> Iterator[Objects]:
        """Yield the pages of all keys after the key `after`; "" stands for the beginning of the listing."""
        begin: Any = {"StartAfter": after} if after else {}
        for page in self._paginated(self._prefix, begin):
            yield page.get("Contents", ())

    def span(self, after: str | None, last: str | None) -> Iterator[Objects]:
        """Yield the pages of the keys after `after` up to `last` (inclusive); None stands for the end.

        Raise `_NotInOrderError` if the server does not return the keys after `after` in their order.
        """
        after = after or ""
        for page in self.pages(after):
            keys = [each["Key"] for each in page]
            if not _is_by_key(after, keys):
                raise _NotInOrderError(
                    f"listing s3://{self._bucket}/{self._prefix}: the server did not list the keys after "
                    f"{after!r} in their order",
                    hint="run the command again; if the error stays, the server does not list as S3 does",
                )
            count = len(keys) if last is None else bisect_right(keys, last)
            yield page[:count]
            if count < len(keys):
                return
            after = keys[-1] if keys else after

    def folders_after(self, keys: Sequence[str]) -> list[str]:
        """Return boundaries of spans for the keys after `keys`, which are the first page of the listing.

        The boundaries are sorted names of folders. They are chosen so that a span has about PAGES_PER_SPAN
        pages if the following folders are as large as those of `keys`.
        """
        last = keys[-1]
        parents = [last[: at + 1] for at in range(len(self._prefix), len(last)) if last[at] == "/"]
        # The folder of the last key is not counted, because its objects have other names.
        levels = [self._prefix, *parents][:-1]
        found = {each for level in levels for each in self._folders_in(level, last) if each > last}
        folder_count = len({key.rpartition("/")[0] for key in keys})
        step = PAGES_PER_SPAN * folder_count
        return sorted(found)[::step]

    def _folders_in(self, prefix: str, after: str) -> Iterator[str]:
        for page in self._paginated(prefix, {"StartAfter": after, "Delimiter": "/"}):
            folders = page.get("CommonPrefixes", ())
            yield from (each["Prefix"] for each in folders)
            if len(folders) < len(page.get("Contents", ())):
                # This page and probably the next ones list mostly objects.
                return

    def _paginated(self, prefix: str, more: Any) -> Iterator[Any]:
        return iter(self._paginate(Bucket=self._bucket, Prefix=prefix, **more))


def _is_by_key(after: str, keys: Sequence[str]) -> bool:
    """Return whether `keys` are in key order and all come after `after`."""
    return all(a < b for a, b in pairwise(chain((after,), keys)))


class _Ahead(Generic[Page]):
    """Fetch the pages of one span: one page at a time in a thread, up to PAGES_AHEAD ahead of their use."""

    def __init__(self, threads: ThreadPoolExecutor, pages: Iterator[Page]) -> None:
        self._threads = threads
        self._pages = pages
        self._fetched: deque[Future[Page | None]] = deque()

    def fetch(self) -> None:
        """Start to fetch the next page, unless a page is being fetched or PAGES_AHEAD pages wait."""
        if self._fetched:
            last = self._fetched[-1]
            if (
                len(self._fetched) > PAGES_AHEAD
                or not last.done()
                or last.exception()
                or last.result() is None
            ):
                return
        self._fetched.append(self._threads.submit(next, self._pages, None))

    def take(self) -> Page | None:
        """Return the next page once it is complete, None after the last; raise the error of its request."""
        return self._fetched.popleft().result()


def in_order(spans: Iterator[Iterator[Page]]) -> Iterator[Page]:
    """Yield the pages of the spans in order, while threads fetch the pages of the next spans."""
    with ThreadPoolExecutor(SPANS_AT_ONCE, thread_name_prefix="tierctl-listing") as threads:
        window = deque(_Ahead(threads, pages) for pages in islice(spans, SPANS_AT_ONCE))
        while window:
            for each in window:
                each.fetch()
            page = window[0].take()
            if page is not None:
                yield page
                continue
            window.popleft()
            window.extend(_Ahead(threads, pages) for pages in islice(spans, 1))
