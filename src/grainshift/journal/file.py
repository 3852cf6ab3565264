"""Opens the Journal's SQLite file, private to the user. Knows nothing of events."""

import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from grainshift.core.errors import JournalFault

APPLICATION = 0x47534A31
FORMAT = 1
PAGE_BYTES = 4096
_CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_SCHEMA = f"""
CREATE TABLE run(
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, header TEXT NOT NULL,
    started_at_s REAL NOT NULL, written_at_s REAL NOT NULL, cut INTEGER NOT NULL DEFAULT 0);
CREATE TABLE chunk(
    id INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL,
    first INTEGER NOT NULL, count INTEGER NOT NULL, data BLOB NOT NULL);
CREATE INDEX chunk_run ON chunk(run);
CREATE TABLE experience(
    place TEXT NOT NULL, choice TEXT NOT NULL,
    log_gain REAL NOT NULL, blocks REAL NOT NULL, at_s REAL NOT NULL,
    PRIMARY KEY(place, choice)) WITHOUT ROWID;
CREATE INDEX experience_at ON experience(at_s);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {FORMAT};
"""


class JournalWarning(UserWarning):
    """The Journal cannot be written; the model runs on, and its story is kept in memory."""


def open_to_write(path: Path, wal_bytes: int = 4 << 20, busy_s: float = 1.0) -> sqlite3.Connection:
    """The file open for writing, made first where it is missing."""
    _make_private(path)
    connection = sqlite3.connect(
        path, timeout=busy_s, isolation_level=None, check_same_thread=False
    )
    try:
        _prepare(path, connection, wal_bytes, time.monotonic() + busy_s)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def open_to_read(path: Path) -> Iterator[sqlite3.Connection]:
    """The file open for reading alone; every fault becomes a JournalFault with a sentence."""
    try:
        if not path.is_file():
            raise JournalFault(
                f"there is no Journal at {path}; tune a model first, or name another"
            )
        connection = _connect_to_read(path)
        try:
            _recognise(path, connection)
            yield connection
        finally:
            connection.close()
    except (sqlite3.Error, OSError) as fault:
        raise JournalFault(f"the Journal {path} cannot be read: {fault}") from fault


def is_corrupt(fault: BaseException) -> bool:
    """Whether SQLite says that the file itself is broken."""
    code = getattr(fault, "sqlite_errorcode", None)
    return isinstance(fault, sqlite3.Error) and code is not None and code & 0xFF in _CORRUPT


def set_aside(path: Path) -> Path:
    """Move a broken file and its WAL out of the way; the last broken one alone is kept."""
    aside = path.with_name(path.name + ".corrupt")
    for suffix in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            Path(f"{path}{suffix}").replace(f"{aside}{suffix}")
    return aside


def wal_size_bytes(path: Path) -> int:
    """The size of the write-ahead log beside the file."""
    try:
        return Path(f"{path}-wal").stat().st_size
    except FileNotFoundError:
        return 0


def _make_private(path: Path) -> None:
    if not path.parent.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
        os.close(os.open(path, flags, 0o600))
    except FileExistsError:
        _check_private(path)


def _check_private(path: Path) -> None:
    # never open and close the file itself here: that drops SQLite's locks in this process
    for found in (path.lstat(), path.stat()):
        if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
            raise JournalFault(f"the Journal {path} belongs to another user; name another place")
    if not stat.S_ISREG(path.stat().st_mode):
        raise JournalFault(f"the Journal {path} is not a file; name another place")
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        path.chmod(0o600)


def _prepare(path: Path, connection: sqlite3.Connection, wal_bytes: int, until_s: float) -> None:
    while True:  # SQLite answers busy at once when two processes turn WAL on
        try:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA secure_delete = OFF")  # else deleting fills the WAL
            connection.execute(f"PRAGMA wal_autocheckpoint = {wal_bytes // 2 // PAGE_BYTES}")
            connection.execute(f"PRAGMA journal_size_limit = {wal_bytes // 2}")
            return _recognise(path, connection, begin=True)
        except sqlite3.OperationalError as fault:
            if fault.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until_s:
                raise
            time.sleep(0.01)


def _recognise(path: Path, connection: sqlite3.Connection, begin: bool = False) -> None:
    known = (APPLICATION, FORMAT)
    if _identity(connection)[:2] == known:
        return
    if begin:
        connection.execute("BEGIN IMMEDIATE")
        if _identity(connection) == (0, 0, 0):
            for statement in _SCHEMA.split(";\n"):
                connection.execute(statement)
        connection.execute("COMMIT")  # a fault before this closes the file, which rolls back
    application, version, _ = found = _identity(connection)
    if found[:2] != known:
        kind = f"has format {version}" if application == APPLICATION else "is not a Journal"
        raise JournalFault(f"{path} {kind}, and this version reads format {FORMAT}; move it away")


def _identity(connection: sqlite3.Connection) -> tuple[int, int, int]:
    query = (
        "SELECT (SELECT application_id FROM pragma_application_id),"
        " (SELECT user_version FROM pragma_user_version), (SELECT count(*) FROM sqlite_master)"
    )
    application, version, tables = connection.execute(query).fetchone()
    return application, version, tables


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _connect_to_read(path: Path) -> sqlite3.Connection:
    where = path.resolve().as_uri()
    connection = sqlite3.connect(f"{where}?mode=ro", uri=True, timeout=1.0, isolation_level=None)
    try:
        _identity(connection)
        return connection
    except sqlite3.OperationalError as fault:
        connection.close()
        if _may(path.parent, os.W_OK) or not _may(path, os.R_OK):
            raise
        if wal_size_bytes(path):
            raise JournalFault(
                f"the Journal {path} lies in a read-only folder with writes still in {path.name}"
                "-wal; copy both files to a folder you can write and name that"
            ) from fault
    # nobody can write here, so nothing changes under the reader
    return sqlite3.connect(f"{where}?mode=ro&immutable=1", uri=True, isolation_level=None)
