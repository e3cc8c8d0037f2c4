"""S3: objects in buckets, and in other stores that implement S3's protocol, through boto3.

The registry of stores opens them; other packages use no name of this one.
"""
