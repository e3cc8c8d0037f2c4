"""The engines on which each command runs."""

from tierctl.cli.docs.messages import command_tree
from tierctl.model.choices import ONLY_SPARK


def engines() -> dict[str, tuple[str, ...]]:
    """Return the values of each command's option --engine; one engine for a command without the option."""
    found = {}
    for node in command_tree().walk():
        if not node.children:
            command = " ".join(node.path)
            only = ("spark",) if command in ONLY_SPARK else ("local",)
            choices = (tuple(each.choices) for each in node.options if "--engine" in each.names)
            found[command] = next(choices, only)
    return found
