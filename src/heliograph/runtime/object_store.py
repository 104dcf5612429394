"""Object stores: named immutable objects that are put once, in a local folder or in S3, GCS or Azure.

    store = object_store("s3://flights/history")         # or a folder, or "file:///mnt/history"
    store.put_if_absent("channels/a/1", data)            # False when the name is taken; never overwrites
    store.get("channels/a/1", 100, 200)                  # bytes of a range
    store.list("channels/a/", after="channels/a/1")

Two writers that put the same name cannot both succeed: that is all that publishing builds on. Credentials,
endpoint and region come from the environment of the process (`AWS_ENDPOINT_URL`, `AWS_REGION`, a role of the
machine), so that none is ever in a configuration, in a plan of Spark or in a checkpoint.
"""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from heliograph.errors import DiskError, MissingExtra, NoSuchFile, NotPossible
from heliograph.runtime.local_disk import disk_error

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMES: Final = ("s3", "gs", "az", "abfs", "abfss")
"""Of URLs that lead to object storage; `file:` and paths lead to folders."""
REQUEST_SECONDS: Final = 120
"""A single request, such as the upload of one segment, that takes longer has failed."""
RETRY_SECONDS: Final = 20
"""For so long a request that failed is repeated at once; publishing tries again later."""

_URL: Final = re.compile(r"(?i)([a-z][a-z0-9+.-]+):/")
_TEMPORARY: Final = ".put-"


class ObjectStore(Protocol):
    """Objects by name, with `/` between parts. An object never changes."""

    url: str

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        """Whether the object was put; False, and nothing changed, when there is one of that name."""
        ...

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes of an object, or of a range of it; NoSuchFile when there is none."""
        ...

    def list(self, prefix: str, after: str = "") -> list[str]:
        """The names that begin with a prefix, which ends in `/`, and come behind `after`; sorted."""
        ...

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; those that are gone already do not matter."""
        ...


def is_remote(location: str) -> bool:
    """Whether a text is the URL of object storage, and not a path or a `file:` URL.

    NotPossible for URLs of other kinds.
    """
    found = _URL.match(location)
    if found is None or found[1].lower() == "file":
        return False
    if found[1].lower() not in SCHEMES:
        raise NotPossible(
            location, f"there are stores at {', '.join(f'{s}://' for s in SCHEMES)} and in folders"
        )
    return True


def object_store(location: str | os.PathLike[str]) -> ObjectStore:
    """The store at a URL or in a folder. Nothing is connected to yet."""
    text = os.fspath(location)
    if is_remote(text):
        return RemoteObjects(text)
    if text.lower().startswith("file:"):
        text = unquote(urlsplit(text).path)
    return FolderObjects(os.path.abspath(os.path.expanduser(text)))  # noqa: PTH111, PTH100 - texts stay texts


class FolderObjects:
    """Objects as files of a folder, which may be one that several machines have mounted."""

    def __init__(self, folder: str) -> None:
        self.url = folder
        self._folder = Path(folder)

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        path = self._folder / name
        temporary = path.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with temporary.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.link(temporary, path)  # fails when there is one, which renaming would replace
            finally:
                temporary.unlink(missing_ok=True)
            _sync_folder(path.parent)
        except FileExistsError:
            return False
        except OSError as error:
            raise disk_error("put", name, error.errno) from error
        return True

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        try:
            with (self._folder / name).open("rb") as file:
                file.seek(start)
                return file.read() if end is None else file.read(end - start)
        except OSError as error:
            raise disk_error("get", name, error.errno) from error

    def list(self, prefix: str, after: str = "") -> list[str]:
        found: list[str] = []
        for folder, _, files in os.walk(self._folder / prefix):
            inner = Path(folder).relative_to(self._folder)
            found += (str(inner / file) for file in files if not file.startswith(_TEMPORARY))
        return sorted(name for name in found if name > after)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(FileNotFoundError):
                try:
                    (self._folder / name).unlink()
                except PermissionError as error:
                    raise disk_error("remove", name, error.errno) from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class RemoteObjects:
    """Objects of a bucket, below the path of the URL."""

    def __init__(self, url: str) -> None:
        try:
            import obstore  # noqa: PLC0415 - an extra
            from obstore.store import from_url  # noqa: PLC0415 - as above
        except ModuleNotFoundError as error:
            raise MissingExtra(f"a store at {url}", "obstore", "store") from error
        self.url = url
        self._api: Any = obstore
        try:
            self._store: Any = from_url(
                url,
                client_options={"timeout": f"{REQUEST_SECONDS}s", "allow_http": _allows_http()},
                retry_config={"max_retries": 3, "retry_timeout": _duration(RETRY_SECONDS)},
            )
        except Exception as error:
            raise NotPossible(url, f"it is no store that can be opened: {error}") from error

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415 - as above

        try:
            # In one request: the parts of an upload in parts are joined without asking for the name.
            self._api.put(self._store, name, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        except Exception as error:
            raise _failed("put", name, error) from error
        return True

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        try:
            if end is None and not start:
                return bytes(self._api.get(self._store, name).bytes())
            stop = self._api.head(self._store, name)["size"] if end is None else end
            return bytes(self._api.get_range(self._store, name, start=start, end=stop))
        except FileNotFoundError:
            raise NoSuchFile("get", name, "there is no such object") from None
        except Exception as error:
            raise _failed("get", name, error) from error

    def list(self, prefix: str, after: str = "") -> list[str]:
        try:
            pages = self._api.list(self._store, prefix, offset=after or None)
            return sorted(one["path"] for page in pages for one in page)
        except Exception as error:
            raise _failed("list", prefix, error) from error

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                self._api.delete(self._store, name)
            except FileNotFoundError:
                continue
            except Exception as error:
                raise _failed("remove", name, error) from error


def _allows_http() -> bool:
    """Whether the environment allows an endpoint without TLS, as a server on one's own machine is."""
    return any(os.environ.get(f"{cloud}_ALLOW_HTTP", "").lower() == "true" for cloud in ("AWS", "AZURE"))


def _duration(seconds: float) -> Any:
    from datetime import timedelta  # noqa: PLC0415 - for stores only

    return timedelta(seconds=seconds)


def _failed(operation: str, name: str, error: Exception) -> DiskError:
    reason = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
    return DiskError(operation, name, reason)
