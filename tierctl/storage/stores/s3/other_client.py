"""Derive the settings of S3 clients other than boto3 from the sources that boto3 reads."""

import os
from typing import Final

import botocore.session

from tierctl.errors import AuthenticationError
from tierctl.storage.stores.base import Endpoint
from tierctl.storage.stores.s3.errors import CREDENTIALS_HINT, translated

_NATIVE_CERTIFICATES: Final = "SSL_CERT_FILE"


class OtherClient:
    """Settings of the Rust crate object_store, on which deltalake is built, by the crate's option names.

    The settings contain credentials: pass them to the client, and neither store nor print them.
    """

    def __init__(self, endpoint: Endpoint | None) -> None:
        self._endpoint = endpoint or Endpoint()
        self._session = botocore.session.get_session()

    def __call__(self) -> dict[str, str]:
        """Return the settings with presently valid credentials; raise AuthenticationError without any."""
        with translated("looking for credentials"):
            credentials = self._session.get_credentials()
            frozen = None if credentials is None else credentials.get_frozen_credentials()
        if frozen is None or not frozen.access_key or not frozen.secret_key:
            raise AuthenticationError(
                "no credentials for S3",
                hint=CREDENTIALS_HINT,
            )
        self._trust_own_certificates()
        settings = {
            "aws_access_key_id": frozen.access_key,
            "aws_secret_access_key": frozen.secret_key,
            "aws_session_token": frozen.token,
            "aws_region": self._endpoint.region or self._session.get_config_variable("region") or "us-east-1",
            "aws_endpoint": self._endpoint.url,
            "aws_allow_http": "true" if (self._endpoint.url or "").startswith("http:") else "false",
            # A version of a table is an object that is created only if it does not exist.
            "aws_conditional_put": "etag",
        }
        return {name: value for name, value in settings.items() if value is not None}

    def _trust_own_certificates(self) -> None:
        """Make the other client trust the certificates in AWS_CA_BUNDLE, a variable that it does not read."""
        bundle = self._session.get_config_variable("ca_bundle")
        if bundle and _NATIVE_CERTIFICATES not in os.environ:
            os.environ[_NATIVE_CERTIFICATES] = bundle
