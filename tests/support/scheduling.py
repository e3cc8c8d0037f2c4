"""Distribution of tests to the processes of pytest-xdist."""

import contextlib
import functools
import re
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling


class ByServers(LoadScopeScheduling):
    """Assign tests to processes file by file, so that few processes start the same servers.

    Each process has its own servers, and an idle broker costs time, too. A process goes on with files that
    need the servers it has, then with a kind of server that no process has, then with files that need none.
    When these have run, it starts servers of another process as well, so that all processes end together.
    """

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0]

    def _assign_work_unit(self, node: Any) -> None:
        waiting: dict[str, list[str]] = {}
        for file in self.workqueue:
            waiting.setdefault(self._servers_of(file), []).append(file)
        started = {each: set(map(self._servers_of, files)) for each, files in self.assigned_work.items()}

        def order(servers: str) -> tuple[int, int]:
            tests = sum(len(self.workqueue[file]) for file in waiting[servers])
            if servers in started[node] - {""}:
                return 0, -tests
            is_new = not any(servers in kinds for kinds in started.values())
            return (2 if not servers else 1 if is_new else 3), -tests

        self.workqueue.move_to_end(waiting[min(waiting, key=order)][0], last=False)
        # Its pipe is broken if the process has just ended: `remove_node` will assign its tests again.
        with contextlib.suppress(OSError):
            super()._assign_work_unit(node)

    def remove_node(self, node: Any) -> str | None:
        """Return the test during which the process `node` ended, or None; assign the tests after it again.

        pytest-xdist would assign the same test to each process that follows, and assign files again that
        have no test left: their process would wait for the report of a test for ever.
        """
        files = self.assigned_work.pop(node)
        tests = [(file, test) for file in files for test, has_run in files[file].items() if not has_run]
        if not tests:
            return None
        for file, test in tests[1:]:
            self.workqueue.setdefault(file, {})[test] = False
        for other in self.nodes:
            self._reschedule(other)
        return tests[0][1]

    def _reschedule(self, node: Any) -> None:
        """Assign files to the process `node` until it has two tests: it runs one when it knows the next."""
        if node not in self.registered_collections:  # it replaces another and is still collecting
            return
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)

    def _servers_of(self, file: str) -> str:
        return _servers_of(file, self.config.rootpath)


_SPARK = r'spark: "?SparkSession|\("spark"|_driver: Driver\b|: Engine\b'
_KINDS = {
    "spark": re.compile(rf"\Atests/(?:spark|pipeline|docs)/.*(?:{_SPARK})", re.DOTALL),
    "brokers": re.compile(r"\Atests/(?:live|kafka|console_consumer)/|\bbrokers?: Brokers?\b"),
    "hdfs": re.compile(r'\Atests/storage/.*\("hdfs"\)', re.DOTALL),
}
"""The kinds of servers, and what the path and the text of a file have if its tests use their fixtures.

Other folders use Spark and HDFS in `make matrix` only.
"""


@functools.cache
def _servers_of(file: str, root: Path) -> str:
    """Return the kind of servers that the fixtures of a file of tests start: a key of `_KINDS`, or ""."""
    text = (root / file).read_text()
    return next((kind for kind, uses in _KINDS.items() if uses.search(f"{file}\n{text}")), "")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByServers:
    """Return the scheduler for `-n`."""
    config.option.loadscopereorder = False
    return ByServers(config, log)
