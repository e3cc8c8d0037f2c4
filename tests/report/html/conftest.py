"""Fixtures of the tests that open pages in a browser."""

from tests.support.browser import browser

__all__ = ["browser"]
