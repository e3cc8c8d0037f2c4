"""Checks: each states what it needs, what it found, why that matters, and how to fix it.

`check` has the framework, `registry` the checks of `doctor` and of `restore check`, and `findings` those of
`verify` and `status`. Each other module makes the checks of one subject.
"""
