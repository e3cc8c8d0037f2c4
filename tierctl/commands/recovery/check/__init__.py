"""`restore --check`: verify what brokers serve after a rebuild or a restore, against the objects of the tier.

`checks` has the table of checks, `expected` what the tier says, and each other module makes checks of it.
"""
