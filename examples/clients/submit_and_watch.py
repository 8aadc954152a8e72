"""Submit a document and watch the job to its end, with gRPC alone: the server itself says what its messages look like."""

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

channel = grpc.insecure_channel(sys.argv[1])
known = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
service = known.FindServiceByName("muster.v1.JobService")


def call(name: str, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Call a method with a request and read its answers, both in protobuf's JSON."""
    method = service.methods_by_name[name]
    asked, answer = map(message_factory.GetMessageClass, (method.input_type, method.output_type))
    # A method that answers once is one that streams a single answer: both look alike on the wire.
    stream = channel.unary_stream(f"/{service.full_name}/{name}", asked.SerializeToString, answer.FromString)
    for message in stream(json_format.ParseDict(request, asked())):
        yield json_format.MessageToDict(message, always_print_fields_with_no_presence=True)


document = {"text": Path(sys.argv[2]).read_text(), "sourceName": sys.argv[2]}
submitted = next(call("SubmitJob", {"requestId": uuid.uuid4().hex, "document": document}))["jobs"][0]
# With the sequence of its submission the watch finds the job, whoever answers and however soon it is asked.
job = {"jobId": submitted["jobId"], "minSequence": submitted["sequence"]}
for seen in call("WatchJob", {"job": job}):
    status = seen["job"]["status"]
    print(seen["job"]["name"], status["phase"], status["reason"]["message"], flush=True)
