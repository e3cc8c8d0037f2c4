"""The fold: it applies metadata events, in offset order, to the state of the tier (`TierState`).

Other packages use `fold` for the decoded columns of a chunk, `fold_event` for a single event, and
`finished_deletions` for the ids of deleted segments.
"""

from tierctl.state.fold.chunk import fold, fold_event
from tierctl.state.fold.event_columns import finished_deletions

__all__ = ["finished_deletions", "fold", "fold_event"]
