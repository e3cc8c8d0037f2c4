"""Metrics of runs, in files that node_exporter's textfile collector reads.

`families` names every metric, `Meter` collects the values of one run, `metrics_file` merges them into a file.
"""

from tierctl.report.metrics.meter import Meter, Scope

__all__ = ["Meter", "Scope"]
