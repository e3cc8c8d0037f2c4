"""`restore new-ids`: give topics of an existing cluster the records of lost topics, under their new ids.

`restore` has the command; `sources` finds the lost topics in the tier and the folders of the new topics.
"""
