"""Lines in one buffer equal the original lines, also after a transfer from an executor."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tierctl.report.formatters.records import TextLines
from tierctl.spark.executors.task import dumps, loads

# A line of a plugin may contain a newline, and so may a separator of --style kip.
LINES = st.lists(st.one_of(st.text(max_size=8), st.sampled_from(["", "\n", "a\nb", "é", "\U0001f600"])))


@given(LINES)
def test_lines_keep_their_text(lines: list[str]) -> None:
    made = TextLines.of(lines)
    assert (len(made), list(made)) == (len(lines), lines)
    assert str(made.text, "utf-8") == "".join(f"{line}\n" for line in lines)


@given(LINES, st.integers(0, 6), st.integers(0, 6))
def test_slices_and_first_lines(lines: list[str], start: int, count: int) -> None:
    array = pa.array([f"{line}\n" for line in lines], pa.string())
    made = TextLines.of_array(array.slice(start, 4)).first(count)
    assert list(made) == lines[start : start + 4][:count]
    assert str(made.text, "utf-8") == "".join(f"{line}\n" for line in made)
    assert list(loads(dumps(made))) == list(made)
    assert bytes(loads(dumps(made)).text) == bytes(made.text)


def test_a_surrogate_is_escaped() -> None:
    assert bytes(TextLines.of(["a\udc80b"]).text) == b"a\\udc80b\n"
