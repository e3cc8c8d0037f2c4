"""Files that Aiven's plugin writes beside a segment: manifests, chunk indexes, custom metadata.

Other packages use the functions of its modules, which are pure: bytes in, values out.
"""
