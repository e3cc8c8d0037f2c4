"""Kafka's record batches: heads, records, columns of records, compression, CRC.

Other packages import from the modules: `record_batch` for single batches, `records` for columns of values.
"""
