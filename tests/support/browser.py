"""A headless Chromium that tests drive with Playwright: Debian's, which `apt-get` installs if it can.

    def test_a_page(browser: Browser) -> None:
        with browser.new_context() as context: ...

Without one the test is skipped with a line that says so; with CI=true that is a failure.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.servers import cannot

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PROGRAMS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
INSTALL_TIMEOUT_S = 600
_CACHE = Path(__file__).parents[2] / ".cache"


def chromium() -> str | None:
    """Return the program; None if it is missing and can't be installed."""
    if (found := _found()) or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return found
    _CACHE.mkdir(exist_ok=True)
    # Other processes of the suite wait here until one process has installed it.
    with (_CACHE / "chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _found() is None:
            _install()
    return _found()


def _found() -> str | None:
    return next((path for path in map(shutil.which, PROGRAMS) if path), None)


def _install() -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
        command = ["apt-get", "-q", *words]
        subprocess.run(command, env=environment, capture_output=True, timeout=INSTALL_TIMEOUT_S, check=False)


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """Return the session's browser, which can only reach this machine."""
    from playwright.sync_api import sync_playwright

    program = chromium()
    if program is None:
        cannot("A BROWSER", "Chromium is not there, and apt-get can't install it")
    with sync_playwright() as playwright:
        # The sandbox does not work as root; the pages come from these tests.
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()
