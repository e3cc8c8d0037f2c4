"""Checks of the conditions under which tiering fails: settings, clocks, rights, stores, local files.

Other packages use the table `Check`, `Result`, `Examination`, and one module per subject that is examined.
"""
