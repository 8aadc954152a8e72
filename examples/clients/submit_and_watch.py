"""Submit a document and watch its job with gRPC alone, using server reflection for the message types."""

import sys
import uuid
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

channel = grpc.insecure_channel(sys.argv[1])
pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
methods = pool.FindServiceByName("muster.v1.JobService").methods_by_name
phases = pool.FindEnumTypeByName("muster.v1.Phase").values_by_number


def call(name: str, **fields: Any) -> Any:
    """Call a method. On the wire a unary answer is a stream of one message."""
    types = (methods[name].input_type, methods[name].output_type)
    send, receive = map(message_factory.GetMessageClass, types)
    path = f"/muster.v1.JobService/{name}"
    return channel.unary_stream(path, send.SerializeToString, receive.FromString)(send(**fields))


document = {"text": Path(sys.argv[2]).read_text()}
(job,) = next(call("SubmitJob", request_id=uuid.uuid4().hex, document=document)).jobs
for event in call("WatchJob", job={"job_id": job.job_id, "min_revision": job.revision}):
    if event.HasField("job"):
        status = event.job.status
        print(event.job.name, phases[status.phase].name, status.reason.message, flush=True)
