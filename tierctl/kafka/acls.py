"""Rights that a broker with an authorizer checks, for the hints of authorization errors."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Right:
    """An operation, named as in kafka-acls, on a topic or a group, or on the cluster if both are None."""

    operation: str
    topic: str | None = None
    group: str | None = None

    @property
    def command(self) -> str:
        """The kafka-acls command that grants the right."""
        resource = "--cluster" if self.topic is None else f"--topic {self.topic}"
        if self.group is not None:
            resource = f"--group {self.group}"
        return f"kafka-acls --add --allow-principal User:... --operation {self.operation} {resource}"

    @property
    def hint(self) -> str:
        """The advice to a login that lacks the right."""
        return f"the user lacks a right: {self.command}"
