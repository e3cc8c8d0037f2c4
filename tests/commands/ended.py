"""How a command line ended."""

from tests.cli.shell import Ran


def ended(ran: Ran, code: int, *texts: str) -> Ran:
    """Check that a run ended with `code` and has each of `texts` on stderr; return it."""
    assert ran.code == code, ran.err
    for text in texts:
        assert text in ran.err, ran.err
    return ran
