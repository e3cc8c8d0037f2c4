"""Tests beside brokers; a failed assertion of a module that they share tells its values, as in a test."""

import pytest

pytest.register_assert_rewrite(
    *(f"tests.live.{name}" for name in ("commands", "history", "replicas", "secured"))
)
