"""What a broker with an authorizer must allow, for the hint of an error that says it does not."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Right:
    """An operation, by kafka-acls' name for it, on a topic; on the cluster without one."""

    operation: str
    topic: str | None = None

    @property
    def hint(self) -> str:
        """How it is given."""
        resource = "--cluster" if self.topic is None else f"--topic {self.topic}"
        given = f"--operation {self.operation} {resource}"
        return f"the user lacks a right: kafka-acls --add --allow-principal User:... {given}"
