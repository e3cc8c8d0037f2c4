"""Read one partition in several tasks, each of which another process may carry out.

Other packages use `plan_read_tasks`, `ReadTask` and `read_task`.
"""
