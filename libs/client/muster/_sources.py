"""Sources of submissions: a document as text, a file, a mapping, or a typed spec."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from muster.errors import InvalidDocument
from muster_core.models import Problem
from muster_rpc.v1 import job_pb2, job_service_pb2

DocumentSource = str | bytes | Path | Mapping[str, object]
"""Text of a document (bytes are UTF-8), its path, or a document as a mapping."""

Source = DocumentSource | job_pb2.JobSpec
"""Text of a document in any format (bytes are UTF-8), its path, a document as a mapping, or a typed spec."""

DOCUMENT_LIMIT = 512 * 1024
"""The greatest size of a document in bytes."""


def spec_or_document(
    source: Source, source_name: str
) -> tuple[job_pb2.JobSpec | None, job_service_pb2.Document | None]:
    """Return the source as the API takes it: exactly one of the two is not None.

    Raises ``InvalidDocument`` for a document that is too long or not UTF-8, ``OSError`` for a file that cannot be read.
    """
    if isinstance(source, job_pb2.JobSpec):
        return source, None
    if isinstance(source, Path):
        name = source_name or str(source)
        return None, _document(_text(source.read_bytes(), name), name)
    if isinstance(source, bytes):
        return None, _document(_text(source, source_name or "the document"), source_name)
    text = source if isinstance(source, str) else json.dumps(source, ensure_ascii=False)
    return None, _document(text, source_name)


def _document(text: str, name: str) -> job_service_pb2.Document:
    size = len(text.encode(errors="surrogatepass"))
    if size > DOCUMENT_LIMIT:
        problem = Problem(
            code="TooLarge",
            path="",
            message=f"the document has {size} bytes",
            found=str(size),
            allowed=f"at most {DOCUMENT_LIMIT}",
            fix="submit the parts of a long document separately",
        )
        raise InvalidDocument(f"{name or 'the document'} is too large", [problem])
    return job_service_pb2.Document(text=text, source_name=name)


def _text(content: bytes, name: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        problem = Problem(
            code="NotUtf8",
            path="",
            message=f"byte {error.start} is not UTF-8",
            line=content.count(b"\n", 0, error.start) + 1,
            column=error.start - content.rfind(b"\n", 0, error.start),
            found=f"0x{content[error.start]:02x}",
            allowed="UTF-8 text",
            fix="save the file as UTF-8",
        )
        raise InvalidDocument(f"{name} is not UTF-8", [problem]) from None
