"""What Aiven's plugin writes beside a segment: manifests, chunk indexes, custom metadata.

Pure: bytes in, values out.
"""
