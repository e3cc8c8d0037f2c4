"""A broker's log directories as data; nothing here changes a file.

Exports the functions that read log directories and their locks.
"""

from tierctl.locallog.folders import (
    FolderKind,
    LeftOutFolder,
    ensure_stopped,
    is_locked,
    is_log_dir,
    left_out_folders,
    node_of,
    read_log_dir_facts,
    require_folder,
    require_log_dirs,
    require_own_log_dirs,
)
from tierctl.locallog.formatted_node import FormattedNode, read_formatted_node, read_registration
from tierctl.locallog.log_end import list_partitions, read_log_dirs, with_open_transaction
