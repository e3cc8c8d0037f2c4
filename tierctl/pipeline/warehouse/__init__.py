"""Storage of the pipeline's tables in a folder or an S3 bucket, and the commits of the tables.

Other packages use `open.WarehouseSpec`.
"""
