"""Metadata topics in folders: the number of their partitions, their replicas, and the id of a new one."""
