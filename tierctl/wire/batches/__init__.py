"""Record batches of a log segment: headers, records, columns of records, compression.

Pure: bytes in, values out.
"""
