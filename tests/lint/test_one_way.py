"""Each question has one answer in the code: these tests fail when a second answer is added."""

import ast
from collections.abc import Collection
from functools import cache

import pytest

from tests.lint.modules import FILES, ROOT, functions, nodes, within_package

CONTRACTS = {
    "a tier": "delete_log_segments",
    "a store": "put_all",
    "a layout": "keys_to_delete",
}
"""A method that every implementation of the contract has, and no other class."""

OPENERS = {
    "a tier": {"storage/open_tier.py"},
    "a store": {f"storage/stores/{name}.py" for name in ("local_store", "hdfs", "arrow", "s3/store")},
    "a layout": {"storage/open_tier.py", "storage/layouts/aiven/layout.py"},
}
"""The only modules that construct each: `open_tier`, and `open_store` of each store."""

TOPIC_MAKERS = {
    "FolderTopic": {"metadata/topic/open_topic.py"},
    "ClusterTopic": {"metadata/topic/cluster_topic.py"},
    "open_on_cluster": {"metadata/topic/open_topic.py"},
    "FolderWriter": {"metadata/topic/open_topic.py"},
    "SegmentFile": {"metadata/topic/open_topic.py"},
    "StoreFiles": {"metadata/topic/open_topic.py"},
    "PartitionLog": {"metadata/topic/folder.py", "metadata/topic/folder_writer.py"},
    "PartitionWriter": {"metadata/topic/folder_writer.py"},
    "TopicReader": {"metadata/topic/cluster_topic.py"},
    "TopicPublisher": {"metadata/topic/cluster_topic.py"},
}
"""The only modules that construct a metadata topic, or a part of one; others call `open_topic`."""


@cache
def implementations(method: str) -> set[str]:
    """Return the names of the classes that implement the contract to which `method` belongs."""
    return {
        node.name
        for file in FILES
        for node in nodes(file)
        if isinstance(node, ast.ClassDef)
        and any(isinstance(each, ast.FunctionDef) and each.name == method for each in node.body)
        and not any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
    }


def constructed(module: Collection[ast.AST], classes: set[str]) -> set[str]:
    """Return the names in `classes` that the nodes of a module call, also under another name."""
    names = {name: name for name in classes}
    for node in module:
        if isinstance(node, ast.ImportFrom):
            names |= {each.asname: each.name for each in node.names if each.asname and each.name in classes}
    found = set()
    for node in module:
        if isinstance(node, ast.Call):
            name = _name_of(node.func)
            found |= {names[name]} if name in names else set()
    return found


@cache
def makers() -> dict[str, set[str]]:
    """Return the modules that may construct each class of a tier, a store, a layout or a metadata topic."""
    found = ((implementations(method), OPENERS[what]) for what, method in CONTRACTS.items())
    return {name: allowed for names, allowed in found for name in names} | TOPIC_MAKERS


def second_makers(module: str, of_module: Collection[ast.AST]) -> set[str]:
    """Return an error for each construction in `module` that is allowed only in another module."""
    return {
        f"{module} constructs {name}: use open_tier, open_store or open_topic"
        for name in constructed(of_module, set(makers()))
        if module not in makers()[name]
    }


def test_tiers_stores_layouts_and_topics_are_constructed_where_they_are_opened() -> None:
    assert all(implementations(method) for method in CONTRACTS.values())
    assert set().union(*(second_makers(within_package(file), nodes(file)) for file in FILES)) == set()
    for name, allowed in TOPIC_MAKERS.items():
        found = any(constructed(nodes(ROOT / module), {name}) for module in allowed)
        assert found, f"{name} has another name now"


@pytest.mark.parametrize(
    "source",
    [
        *("KafkaLayout()", "layouts.KafkaLayout()", "from x import KafkaLayout as T\nT()"),
        *("FolderTopic(Path())", "folder.FolderTopic(path)", "from x import PartitionLog as L\nL(path, 0)"),
    ],
)
def test_a_second_maker_is_found(source: str) -> None:
    assert second_makers("read/other.py", [*ast.walk(ast.parse(source))])
    assert not second_makers("read/other.py", [*ast.walk(ast.parse("open_topic(location)"))])


def test_one_function_opens_tiers() -> None:
    """Only `open_tier` returns a tier that it opened."""
    found = {
        f"{within_package(file)}: {node.name}"
        for file in FILES
        if file.is_relative_to(ROOT / "storage")
        for node in functions(file)
        if node.returns is not None and ast.unparse(node.returns).strip("'\"") == "RemoteStorageManager"
    }
    assert found == {"storage/open_tier.py: open_tier"}


def test_files_of_the_package_are_read_where_tierctl_is_a_zip_file() -> None:
    """Spark ships tierctl as a zip file to drivers and executors: a path beside a module is no file there."""
    beside = {
        within_package(file)
        for file in FILES
        if any(
            (isinstance(node, ast.Name) and node.id == "__file__")
            or (isinstance(node, ast.Attribute) and node.attr == "__file__")
            for node in nodes(file)
        )
    }
    # Three run in a source tree only: `make formatter` and `make docs`. Kernels in a zip file are
    # compiled without a cache.
    docs = {"cli/docs/man.py", "cli/docs/write.py"}
    assert beside <= docs | {"console_consumer/__init__.py", "kernel.py"}


def test_files_alone_says_what_is_absent() -> None:
    """The methods of Path say False for what may not be read since Python 3.14; os.DirEntry raises."""
    no_paths = {"entry", "item", "self", "self._admin"}
    methods = {"exists", "is_dir", "is_file", "is_symlink", "is_mount"}
    asked = [
        f"{within_package(file)}:{node.lineno}"
        for file in FILES
        for node in nodes(file)
        if isinstance(node, ast.Attribute) and node.attr in methods
        if ast.unparse(node.value) not in no_paths
    ]
    assert asked == []


def test_no_pattern_takes_digits_of_other_scripts() -> None:
    r"""In text, \d also stands for digits that neither brokers nor stores write: [0-9] does not."""
    classes = {
        f"{within_package(file)}:{node.lineno}"
        for file in FILES
        for node in nodes(file)
        if isinstance(node, ast.Constant) and r"\d" in str(node.value)
    }
    asked = {
        f"{within_package(file)}:{node.lineno}"
        for file in FILES
        for node in nodes(file)
        if isinstance(node, ast.Attribute) and node.attr in {"isdecimal", "isnumeric"}
    }
    assert classes | asked == set()


def test_metadata_topics_are_implemented_in_their_package_alone() -> None:
    """A third class with the methods of `MetadataTopic` would be a second way to read the topic."""
    assert implementations("beginning_offsets") == {"FolderTopic", "ClusterTopic"}
    openers = {
        within_package(file) for file in FILES for node in functions(file) if node.name == "open_topic"
    }
    assert openers == {"metadata/topic/open_topic.py"}


def test_one_module_of_the_commands_reads_brokers_files() -> None:
    readers = {
        file.name
        for file in FILES
        if file.is_relative_to(ROOT / "commands")
        for node in nodes(file)
        if isinstance(node, ast.ImportFrom) and "broker_file" in {each.name for each in node.names}
    }
    assert readers == {"resources.py"}


WRITES = frozenset(
    {
        *("copy_log_segment_data", "delete_log_segments", "store_indexes", "copy_objects"),
        *("create_identity", "replace_identity", "publish", "publish_segments", "delete_waves", "put_all"),
    }
)
"""The names by which code publishes metadata, or stores or deletes objects of a tier."""

WRITERS = {
    "commands/copy/act.py": "copies segments",
    "commands/delete.py": "removes the partitions of deleted topics",
    "apply/run.py": "carries out plans: deletes segments, and publishes segments that are in the tier",
    "commands/verify/act.py": "the repairs of verify",
    "apply/run_context.py": "publishes for all of them, and asks the lease at the last moment",
    "apply/tier_check.py": "the identity of a tier",
    "commands/restore/hosts.py": "rebuild",
    "commands/restore/new_node.py": "the metadata topic of a new node, and the probe of denied deletes",
    "commands/restore/to_ids.py": "copies of objects under new ids",
    "checks/store.py": "the probe objects of doctor",
    "pipeline/warehouse.py": "tables of the pipeline, which are no objects of a tier",
}
"""The modules outside of storage/ and metadata/ that do so, each with what it is for."""


def test_few_modules_publish_store_or_delete() -> None:
    """A command cannot change a tier by accident: only the acts do, and each of them needs the right."""
    found = {
        within_package(file)
        for file in FILES
        if file.relative_to(ROOT).parts[0] not in {"storage", "metadata"}
        for node in nodes(file)
        if isinstance(node, ast.Call) and _name_of(node.func) in WRITES
    }
    assert found == WRITERS.keys()


def _name_of(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
