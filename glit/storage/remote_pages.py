"""List the objects below an address page by page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fsspec.asyn import sync

from glit.storage.remote import translate_storage_errors

_FOLDER_MARKS = ("hdi_isfolder", "Hdi_isfolder", "is_directory")
_FIELDS = "kind,nextPageToken,items(name,size,etag)"


def walk_remote(fs: Any, base: str, where: str) -> Iterator[tuple[str, int, str]]:
    """Yield path below ``base``, size and stamp of every object, one page in memory at a time.

    S3, Google's and Azure's stores are listed flat, as ``folder//x`` and an object that is named
    like a folder are there too; other systems folder by folder.
    """
    if hasattr(fs, "call_s3"):
        yield from _walk_s3(fs, base, where)
    elif hasattr(fs, "service_client"):
        yield from _walk_azure(fs, base, where)
    elif isinstance(fs.protocol, tuple) and "gs" in fs.protocol:
        yield from _walk_google(fs, base, where)
    else:
        yield from _walk_folders(fs, base, where)


def stamp_of(info: dict[str, Any]) -> str:
    """A value that changes with the object: its tag, else its time."""
    for key in ("ETag", "etag", "mtime", "LastModified", "last_modified", "updated", "blob_id"):
        if info.get(key):
            return str(info[key])
    return ""


def _walk_s3(fs: Any, base: str, where: str) -> Iterator[tuple[str, int, str]]:
    bucket, prefix = _bucket_and_prefix(fs, base)
    token: dict[str, str] = {}
    while True:
        with translate_storage_errors(where, of_bucket=True):
            page = fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, **token)
        for item in page.get("Contents", ()):
            if not item["Key"].endswith("/"):  # a folder, as consoles make them
                yield item["Key"].removeprefix(prefix), int(item["Size"]), stamp_of(item)
        if not page.get("IsTruncated"):
            return
        token = {"ContinuationToken": page["NextContinuationToken"]}


def _walk_google(fs: Any, base: str, where: str) -> Iterator[tuple[str, int, str]]:
    bucket, prefix = _bucket_and_prefix(fs, base)
    token: dict[str, str] = {}
    while True:
        with translate_storage_errors(where, of_bucket=True):
            asked = {"prefix": prefix or None, "fields": _FIELDS, **token}
            page = fs.call("GET", "b/{}/o", bucket, json_out=True, **asked)
        for item in page.get("items", ()):
            if not item["name"].endswith("/"):
                yield item["name"].removeprefix(prefix), int(item.get("size", 0)), stamp_of(item)
        if not page.get("nextPageToken"):
            return
        token = {"pageToken": page["nextPageToken"]}


def _walk_azure(fs: Any, base: str, where: str) -> Iterator[tuple[str, int, str]]:
    container, prefix = _bucket_and_prefix(fs, base)
    token: str | None = None
    while True:
        with translate_storage_errors(where, of_bucket=True):
            found: Any = sync(fs.loop, _page_of_azure, fs, container, prefix, token)
            page, token = found
        for item in page:
            if not item.name.endswith("/") and not _is_azure_folder(item.metadata or {}):
                # adlfs has the tag in quotes where it looks at one object
                yield item.name.removeprefix(prefix), int(item.size), f'"{item.etag}"'
        if not token:
            return


async def _page_of_azure(
    fs: Any, container: str, prefix: str, token: str | None
) -> tuple[list[Any], str | None]:
    """Blobs, and where the next page begins.

    Raises:
        FileNotFoundError: there is no such container.
    """
    from azure.core.exceptions import ResourceNotFoundError

    async with fs.service_client.get_container_client(container) as client:
        found = client.list_blobs(name_starts_with=prefix or None, include=["metadata"])
        pages = found.by_page(token)
        try:
            page = [blob async for blob in await anext(pages)]
        except StopAsyncIteration:
            return [], None
        except ResourceNotFoundError as error:
            raise FileNotFoundError(container) from error
        return page, pages.continuation_token


def _is_azure_folder(metadata: dict[str, str]) -> bool:
    return any(metadata.get(mark) == "true" for mark in _FOLDER_MARKS)


def _bucket_and_prefix(fs: Any, base: str) -> tuple[str, str]:
    bucket, key, _ = fs.split_path(base)
    return bucket, f"{key}/" if key else ""


def _walk_folders(fs: Any, base: str, where: str) -> Iterator[tuple[str, int, str]]:
    waiting = [base]
    while waiting:
        folder = waiting.pop()
        with translate_storage_errors(where):
            try:
                found = fs.ls(folder, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                continue
        for info in found:
            path = str(info["name"]).rstrip("/")
            if info["type"] == "directory":
                if path != folder:
                    waiting.append(path)
            else:
                yield _below(path, base), int(info.get("size") or 0), stamp_of(info)


def _below(path: str, base: str) -> str:
    return path.lstrip("/").removeprefix(base.strip("/") + "/")
