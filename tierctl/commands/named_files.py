"""Check the files and folders that a request names, also those that its command would not read."""

from tierctl.commands.request import Request
from tierctl.locallog import require_folder


def require_named_files(request: Request) -> None:
    """Raise NotFoundError or UsageError for a log directory or a client file that can't be read."""
    for folder in request.log_dir:
        require_folder(folder)
    if request.command_config is not None:
        from tierctl.kafka.client_settings import client_file

        client_file(request.command_config)
