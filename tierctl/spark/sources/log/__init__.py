"""The parts of the data source `remote_log`: its options, the plan of its tasks, and its rows.

Other packages use `rows.SCHEMA`.
"""
