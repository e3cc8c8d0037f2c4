"""Topics on clusters and brokers that tier, for the tests of this folder."""

from tests.metadata.conftest import on, tiered

__all__ = ["on", "tiered"]
