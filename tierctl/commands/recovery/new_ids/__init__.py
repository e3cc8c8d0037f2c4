"""`restore --new-ids`: give topics of an existing cluster the records of a lost one, under their new ids.

`restore` has the command, `sources` what is known of the tier and of the folders of the new topics.
"""
