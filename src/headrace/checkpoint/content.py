"""Whether a file of a checkpoint is what was written into it: Hadoop's checksums beside it, and its own form."""

from __future__ import annotations

import json
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from headrace.checkpoint.rewrite import checksum_of
from headrace.storage.remote import RemotePath

# The whole content of larger files is left to Spark, which reads it all: a start must not take longer for it.
WHOLE_BYTES = 1024 * 1024
_HEADER = struct.Struct(">4sI")
_LZ4 = b"LZ4Block"
_LZ4_END_BYTES = 21
_CODECS = (_LZ4, b"\x28\xb5\x2f\xfd", b"\x82SNAPPY\x00", b"ZV")


def fault_of(file: Path) -> str | None:
    """What is wrong with `file`, which is there; None if nothing can be found."""
    if isinstance(file, RemotePath):
        return None  # HDFS keeps checksums of its own, and compares them when a file is read.
    size = file.stat().st_size
    if size == 0:
        return "it is empty"
    told = _Checksums.beside(file)
    if told is not None and (size + told.chunk_bytes - 1) // told.chunk_bytes != len(told.sums):
        return f"its {size} bytes are not as many as were written"
    if size <= WHOLE_BYTES:
        data = file.read_bytes()
        if told is not None and not told.fit(data):
            return "its content is not what was written, as the checksum beside it shows"
    return None


def state_fault_of(file: Path) -> str | None:
    """What is wrong with a changelog, delta or snapshot of a state store, or with a file that a snapshot names."""
    fault = fault_of(file)
    if fault is None:
        fault = _zip_fault(file) if file.suffix == ".zip" else _stream_fault(file)
    return fault


def _stream_fault(file: Path) -> str | None:
    """A compressed stream begins as its codec writes it; that of lz4 ends with a block of no bytes."""
    with file.open("rb") as stream:
        head = stream.read(len(_LZ4))
        if not head.startswith(_CODECS):
            return "it does not begin as Spark writes such files"
        if head == _LZ4:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(size - _LZ4_END_BYTES, 0))
            end = stream.read()
            if not end.startswith(_LZ4) or any(end[len(_LZ4) + 1 :]):
                return "it is cut off"
    return None


def _zip_fault(file: Path) -> str | None:
    try:
        with file.open("rb") as opened, zipfile.ZipFile(opened) as archive:
            broken = archive.testzip() if file.stat().st_size <= WHOLE_BYTES else None
            if broken is not None:
                return f"its part {broken} is damaged"
            facts = json.loads(archive.read("metadata").split(b"\n", 1)[1])
            parts = [(file.parent / "SSTs" / str(part["dfsSstFileName"]), part) for part in facts.get("sstFiles", ())]
            parts += [(file.parent / "logs" / str(part["dfsLogFileName"]), part) for part in facts.get("logFiles", ())]
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError) as error:
        return f"it cannot be unpacked: {error}"
    except (ValueError, KeyError, IndexError, TypeError):
        return "it does not say which files it is made of"
    return next(_part_faults(parts), None)


def _part_faults(parts: list[tuple[Path, dict[str, int]]]) -> Iterator[str]:
    for part, facts in parts:
        if not part.exists():
            yield f"{part.parent.name}/{part.name}, which it needs, is missing"
        elif part.stat().st_size != facts["sizeBytes"]:
            yield (
                f"{part.parent.name}/{part.name}, which it needs, has {part.stat().st_size} bytes in place of "
                f"{facts['sizeBytes']}"
            )
        elif (fault := fault_of(part)) is not None:
            yield f"{part.parent.name}/{part.name}, which it needs, is damaged: {fault}"


class _Checksums:
    """Hadoop's checksums of a local file: one CRC-32 for each of its chunks."""

    def __init__(self, chunk_bytes: int, sums: tuple[int, ...]) -> None:
        self.chunk_bytes = chunk_bytes
        self.sums = sums

    @classmethod
    def beside(cls, file: Path) -> _Checksums | None:
        """Those beside `file`; None where there are none that Hadoop would look at."""
        try:
            data = checksum_of(file).read_bytes()
        except OSError:
            return None
        if len(data) < _HEADER.size:
            return None
        magic, chunk_bytes = _HEADER.unpack_from(data)
        if magic != b"crc\0" or chunk_bytes <= 0:
            return None
        count = (len(data) - _HEADER.size) // 4
        return cls(chunk_bytes, struct.unpack_from(f">{count}I", data, _HEADER.size))

    def fit(self, data: bytes) -> bool:
        chunks = (data[start : start + self.chunk_bytes] for start in range(0, len(data), self.chunk_bytes))
        return all(zlib.crc32(chunk) == told for chunk, told in zip(chunks, self.sums, strict=True))
