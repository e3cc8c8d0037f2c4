"""The files with passwords and keys that a request names or uses."""

import os
from collections.abc import Iterator
from pathlib import Path

from tierctl.commands.broker_settings import valid_in_file
from tierctl.commands.request import Request
from tierctl.doctor import secrets
from tierctl.doctor.secrets import SecretFile
from tierctl.model.private_keys import private_keys_of
from tierctl.wire.files.properties import read_client_file


def secret_files(request: Request, profile_file: Path | None) -> Iterator[SecretFile]:
    """Yield the files of a request that may hold secrets; `profile_file` is the tierctl.toml in use."""
    if request.command_config is not None and request.command_config.exists():
        yield from secrets.settings_files(request.command_config, read_client_file(request.command_config))
    if request.config is not None and request.config.exists():
        yield from secrets.settings_files(request.config, valid_in_file(request.config))
    for file in private_keys_of(request.aiven_private_key).values():
        yield SecretFile(file, "a private key")
    if profile_file is not None:
        yield secrets.profile_file(profile_file)
    if (request.remote or "").startswith("s3:"):
        named = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
        file = Path(named).expanduser()
        if file.is_file():
            yield SecretFile(file, "the keys of AWS clients")
