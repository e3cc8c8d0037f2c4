"""Read one partition in several tasks, each of which another process may carry out.

Other packages use `plan_read_tasks`, `ReadTask` and `read_task`.
"""

from tierctl.read.parallel.task import ReadTask, TimestampRange, read_task
from tierctl.read.parallel.task_planner import SPLIT_BYTES, plan_read_tasks

__all__ = ["SPLIT_BYTES", "ReadTask", "TimestampRange", "plan_read_tasks", "read_task"]
