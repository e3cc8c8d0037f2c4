"""Mark options that only the command line gives, neither the environment nor tierctl.toml.

Apply = Annotated[bool, typer.Option("--apply", help="Carry out the plan."), TYPED_ONLY]
"""

from typing import Final

TYPED_ONLY: Final = object()
"""In the annotation of an option that chooses what is deleted, or weakens a rule of safety."""
