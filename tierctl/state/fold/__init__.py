"""The fold: metadata events, in offset order, to the state of the tier.

Other packages use `fold`, which takes the decoded columns of a chunk, and `fold_event` for single events.
"""
