"""Fixtures of the tests of documents."""

from tests.support.browser import browser

__all__ = ["browser"]
