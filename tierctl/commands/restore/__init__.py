"""Recovery: the sets of objects of a tier (`inventory`), and the targets that get what was chosen of them.

`plan.choose_sets` and `plan.partition_choice` choose the sets, for every target alike: `to_metadata`
(rebuild, whose acts are in `hosts`), `to_node`, `to_ids` and `to_log` (restore). `acts` of a target is its
order of steps. `check` verifies the result, `erasure` finds records by their keys. Exports nothing: import
from the module.
"""
