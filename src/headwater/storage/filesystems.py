"""pyarrow filesystems built from storage options."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pyarrow import fs

from headwater.errors import SettingsError
from headwater.storage.locations import Location, unsupported_scheme
from headwater.storage.options import DEFAULT_REGION, StorageOptions, amazon_host, split_address


def open_filesystem(location: Location, options: StorageOptions) -> fs.FileSystem:
    """A filesystem for the location's store. Nothing is sent to the store yet.

    `options` must be resolved.
    """
    build = {"local": _local, "s3": _s3, "gcs": _gcs, "azure": _azure}[location.kind]
    try:
        return build(location, options)
    except ImportError as error:
        scheme = location.text.partition(":")[0]
        raise unsupported_scheme(
            scheme, location.text, "this build of pyarrow has no driver for it"
        ) from error


def _local(_location: Location, _options: StorageOptions) -> fs.FileSystem:
    return fs.LocalFileSystem()


def _s3(_location: Location, options: StorageOptions) -> fs.FileSystem:
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    endpoint = options.s3_endpoint
    if endpoint is None and options.s3_url_style == "path":
        # pyarrow uses path style only with an endpoint of one's own; Amazon's is as good as any.
        endpoint = amazon_host(options.s3_region or DEFAULT_REGION)
    arguments: dict[str, Any] = {  # the type stubs lag behind pyarrow's arguments
        "access_key": options.s3_access_key_id,
        "secret_key": options.s3_secret_access_key,
        "session_token": options.s3_session_token,
        "anonymous": options.s3_anonymous,
        "region": options.s3_region,
        "scheme": "https" if options.s3_use_ssl else "http",
        "endpoint_override": endpoint,
        "force_virtual_addressing": options.s3_url_style == "vhost",
        "connect_timeout": options.connect_timeout,
        "request_timeout": options.request_timeout,
        "retry_strategy": AwsStandardS3RetryStrategy(max_attempts=options.max_attempts),
        "tls_ca_file_path": options.s3_ca_file,
        # Small objects go in a single request, without beginning a multipart upload first.
        "allow_delayed_open": True,
        # Without it a failed part is forgotten, and closing the stream publishes the object without it.
        "background_writes": True,
    }
    return S3FileSystem(**arguments)


def _gcs(_location: Location, options: StorageOptions) -> fs.FileSystem:
    from pyarrow.fs import GcsFileSystem

    scheme, host = (
        split_address(options.gcs_endpoint, "gcs_endpoint") if options.gcs_endpoint else (None, None)
    )
    arguments: dict[str, Any] = {
        "anonymous": options.gcs_anonymous,
        "access_token": options.gcs_access_token,
        "credential_token_expiration": options.gcs_token_expiration,
        "target_service_account": options.gcs_service_account,
        "project_id": options.gcs_project_id,
        "scheme": scheme,
        "endpoint_override": host,
        "retry_time_limit": timedelta(seconds=options.request_timeout),
    }
    return GcsFileSystem(**arguments)


def _azure(location: Location, options: StorageOptions) -> fs.FileSystem:
    from pyarrow.fs import AzureFileSystem

    account = location.account or options.azure_account_name
    if not account:
        raise SettingsError(
            f"No Azure storage account is known for {location.text!r}",
            hint="set azure_account_name, or write abfss://container@account.dfs.core.windows.net/path",
            location=location.text,
        )
    arguments: dict[str, Any] = {
        "account_key": options.azure_account_key,
        "sas_token": options.azure_sas_token,
        "tenant_id": options.azure_tenant_id,
        "client_id": options.azure_client_id,
        "client_secret": options.azure_client_secret,
    }
    if options.azure_endpoint:
        scheme, host = split_address(options.azure_endpoint, "azure_endpoint")
        arguments |= dict.fromkeys(("blob_storage_authority", "dfs_storage_authority"), host)
        arguments |= dict.fromkeys(("blob_storage_scheme", "dfs_storage_scheme"), scheme or "https")
    return AzureFileSystem(account, **arguments)
