"""Operations toolkit for Apache Kafka tiered storage (KIP-405, KIP-917)."""

__version__ = "0.1.0"
