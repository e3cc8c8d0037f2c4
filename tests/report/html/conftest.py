"""Fixtures of the tests that open pages."""

from tests.support.browser import browser

__all__ = ["browser"]
