"""Checks of files with settings: a broker's, a client's and those of topics.

Each `check_…` reads its file to the end and yields every problem in it.
"""
