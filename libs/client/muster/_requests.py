"""Requests of the API, from documents and references."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from google.protobuf import duration_pb2

from muster._files import DOCUMENT_LIMIT, beginning_of
from muster._messages import job_ref, replica_ref, replica_selector
from muster.errors import InvalidDocument
from muster_core.models import Phase, Problem
from muster_rpc.convert import phase_to_proto
from muster_rpc.v1 import (
    cluster_service_pb2,
    defaults_service_pb2,
    job_pb2,
    job_service_pb2,
    orphan_service_pb2,
    queue_service_pb2,
)

DocumentSource = str | bytes | Path | Mapping[str, object]
"""Text of a document (bytes are UTF-8), its path, or a document as a mapping."""

Source = DocumentSource | job_pb2.JobSpec
"""Text of a document in any format (bytes are UTF-8), its path, a document as a mapping, or a typed spec."""


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
        return None, _document(_text(beginning_of(source), name), name)
    if isinstance(source, bytes):
        return None, _document(_text(source, source_name or "the document"), source_name)
    text = source if isinstance(source, str) else json.dumps(source, ensure_ascii=False)
    return None, _document(text, source_name)


def _document(text: str, name: str) -> job_service_pb2.Document:
    if len(text) > DOCUMENT_LIMIT or len(text.encode(errors="surrogatepass")) > DOCUMENT_LIMIT:
        raise _too_large(name)
    return job_service_pb2.Document(text=text, source_name=name)


def _too_large(name: str) -> InvalidDocument:
    problem = Problem(
        code="TooLarge",
        path="",
        message="the document is too large",
        found=f"more than {DOCUMENT_LIMIT} bytes",
        allowed=f"at most {DOCUMENT_LIMIT}",
        fix="submit the parts of a long document separately",
    )
    return InvalidDocument(f"{name or 'the document'} is too large", [problem])


def _text(content: bytes, name: str) -> str:
    if len(content) > DOCUMENT_LIMIT:
        raise _too_large(name)
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


_JOBS_PER_PAGE = 200
_NODES_PER_PAGE = 500
_QUEUES_PER_PAGE = 500
_ORPHANS_PER_PAGE = 500


class RequestBuilder:
    """Builds requests of one client: its namespace, and the newest state it has seen.

    ``namespace`` is the default of names and documents; empty means "default". Lists and watches take "-" for all namespaces.
    """

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._seen = 0

    def saw(self, revision: int) -> None:
        """Record that a command reached ``revision``: later queries require it, so that a client reads its own writes."""
        self._seen = max(self._seen, revision)

    def ref(self, job: str, namespace: str | None) -> job_service_pb2.JobRef:
        """Return the job of a reference."""
        ref = job_ref(job, self._in(namespace))
        ref.min_revision = self._seen
        return ref

    def submit(
        self,
        source: Source,
        *,
        source_name: str,
        request_id: str | None,
        namespace: str | None,
        validation_wait_s: float | None,
    ) -> job_service_pb2.SubmitJobRequest:
        """Return a submission; its id is generated once and stays the same on retries."""
        spec, document = spec_or_document(source, source_name)
        return job_service_pb2.SubmitJobRequest(
            request_id=request_id or draw_request_id(),
            spec=spec,
            document=document,
            namespace=self._in(namespace),
            validation_wait=_duration(validation_wait_s),
        )

    def validate(
        self, source: Source, *, source_name: str, namespace: str | None
    ) -> job_service_pb2.ValidateJobRequest:
        """Return a validation request."""
        spec, document = spec_or_document(source, source_name)
        return job_service_pb2.ValidateJobRequest(spec=spec, document=document, namespace=self._in(namespace))

    def get(self, job: str, namespace: str | None) -> job_service_pb2.GetJobRequest:
        """Return a request for one job."""
        return job_service_pb2.GetJobRequest(job=self.ref(job, namespace))

    def list(
        self, *, namespace: str | None, queue: str, phases: Iterable[str]
    ) -> job_service_pb2.ListJobsRequest:
        """Return the request for the first page. Raises ``ValueError`` for an unknown phase."""
        return job_service_pb2.ListJobsRequest(
            namespace=self._in(namespace),
            queue=queue,
            phases=[phase_to_proto(_phase(name)) for name in phases],
            page_size=_JOBS_PER_PAGE,
            min_revision=self._seen,
        )

    def watch_all(self, namespace: str | None) -> job_service_pb2.WatchJobsRequest:
        """Return a watch of all jobs of a namespace."""
        return job_service_pb2.WatchJobsRequest(namespace=self._in(namespace))

    def cancel(
        self, job: str, *, namespace: str | None, message: str, request_id: str | None
    ) -> job_service_pb2.CancelJobRequest:
        """Return a cancel request."""
        return job_service_pb2.CancelJobRequest(
            job=self.ref(job, namespace), request_id=request_id or draw_request_id(), message=message
        )

    def delete(
        self, job: str, *, namespace: str | None, request_id: str | None
    ) -> job_service_pb2.DeleteJobRequest:
        """Return a delete request."""
        return job_service_pb2.DeleteJobRequest(
            job=self.ref(job, namespace), request_id=request_id or draw_request_id()
        )

    def suspend(
        self, job: str, *, namespace: str | None, request_id: str | None
    ) -> job_service_pb2.SuspendJobRequest:
        """Return a suspend request."""
        return job_service_pb2.SuspendJobRequest(
            job=self.ref(job, namespace), request_id=request_id or draw_request_id()
        )

    def resume(
        self, job: str, *, namespace: str | None, request_id: str | None
    ) -> job_service_pb2.ResumeJobRequest:
        """Return a resume request."""
        return job_service_pb2.ResumeJobRequest(
            job=self.ref(job, namespace), request_id=request_id or draw_request_id()
        )

    def restart(
        self, job: str, *, replica: str, namespace: str | None, request_id: str | None
    ) -> job_service_pb2.RestartJobRequest:
        """Return a restart request for a job or one of its replicas."""
        return job_service_pb2.RestartJobRequest(
            job=self.ref(job, namespace),
            request_id=request_id or draw_request_id(),
            replica=replica_ref(replica.removeprefix(f"{job}-")),
        )

    def scale(
        self, job: str, *, role: str, replicas: int, namespace: str | None, request_id: str | None
    ) -> job_service_pb2.ScaleJobRequest:
        """Return a scale request."""
        return job_service_pb2.ScaleJobRequest(
            job=self.ref(job, namespace),
            request_id=request_id or draw_request_id(),
            role=role,
            replicas=replicas,
        )

    def explain(self, job: str, namespace: str | None) -> job_service_pb2.ExplainJobRequest:
        """Return an explain request."""
        return job_service_pb2.ExplainJobRequest(job=self.ref(job, namespace))

    def logs(
        self, job: str, *, namespace: str | None, replicas: Iterable[str], follow: bool, tail: int
    ) -> job_service_pb2.StreamLogsRequest:
        """Return a log request."""
        return job_service_pb2.StreamLogsRequest(
            job=self.ref(job, namespace),
            replicas=[replica_selector(one) for one in replicas],
            follow=follow,
            tail=tail,
        )

    def nodes(self) -> cluster_service_pb2.ListNodesRequest:
        """Return the request for the first page of nodes."""
        return cluster_service_pb2.ListNodesRequest(page_size=_NODES_PER_PAGE)

    def apply_defaults(
        self, source: DocumentSource, *, source_name: str, dry_run: bool, expected_revision: int | None
    ) -> defaults_service_pb2.ApplyDefaultsRequest:
        """Return an apply request for platform defaults. Retries change nothing: the same defaults create no new version."""
        _, document = spec_or_document(source, source_name)
        return defaults_service_pb2.ApplyDefaultsRequest(
            document=document, dry_run=dry_run, expected_revision=expected_revision
        )

    def orphans(self) -> orphan_service_pb2.ListOrphansRequest:
        """Return the request for the first page of orphans."""
        return orphan_service_pb2.ListOrphansRequest(page_size=_ORPHANS_PER_PAGE)

    def queues(self) -> queue_service_pb2.ListQueuesRequest:
        """Return the request for the first page of queues."""
        return queue_service_pb2.ListQueuesRequest(page_size=_QUEUES_PER_PAGE)

    def apply_queues(
        self,
        source: DocumentSource,
        *,
        source_name: str,
        prune: bool,
        dry_run: bool,
        expected_revision: int | None,
        request_id: str | None,
    ) -> queue_service_pb2.ApplyQueuesRequest:
        """Return an apply request for queues; its id is generated once and stays the same on retries."""
        _, document = spec_or_document(source, source_name)
        return queue_service_pb2.ApplyQueuesRequest(
            document=document,
            prune=prune,
            dry_run=dry_run,
            expected_revision=expected_revision,
            request_id=request_id or draw_request_id(),
        )

    def delete_queue(
        self, name: str, *, expected_revision: int | None, request_id: str | None
    ) -> queue_service_pb2.DeleteQueueRequest:
        """Return a delete request for a queue."""
        return queue_service_pb2.DeleteQueueRequest(
            name=name, expected_revision=expected_revision, request_id=request_id or draw_request_id()
        )

    def _in(self, namespace: str | None) -> str:
        return self._namespace if namespace is None else namespace


def draw_request_id() -> str:
    """Generate a request id."""
    return str(uuid.uuid4())


def _duration(seconds: float | None) -> duration_pb2.Duration | None:
    if seconds is None:
        return None
    duration = duration_pb2.Duration()
    duration.FromMilliseconds(round(seconds * 1000))
    return duration


def _phase(name: str) -> Phase:
    for phase in Phase:
        if phase.value.lower() == name.replace("_", "").replace("-", "").lower():
            return phase
    raise ValueError(f"{name!r} is not a phase; choose from {', '.join(phase.value for phase in Phase)}")
