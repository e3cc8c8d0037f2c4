"""Storage of the pipeline's tables: a folder or an S3 bucket, with commits that readers see whole.

Other packages open it with `WarehouseSpec`.
"""
