"""`restore check`: verify what brokers serve after a rebuild or a restore, against the objects of the tier.

`checks` has the table of checks, and `expected` derives from the tier the logs that brokers must serve. Each
other module implements some of the checks.
"""
