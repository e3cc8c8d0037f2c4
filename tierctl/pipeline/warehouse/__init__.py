"""Storage of the pipeline's tables as Delta tables in a folder or an S3 bucket, and the commits over them.

Other packages use `layout.WarehouseSpec` and `commits.Commits`, whose module describes how several tables
stay consistent.
"""
