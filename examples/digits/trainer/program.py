"""Run the program: flags and environment in, exit code out.

Exit codes follow the convention of restart policies (1-127 permanent, 128 and above retryable):

==== ==================================================================================================
code meaning
==== ==================================================================================================
0    the role is done; from the chief (or worker 0): the target accuracy was reached
1    the target accuracy was missed; a restart would not help
2    a mistake to fix first: ``TF_CONFIG``, a flag, the data set, or another server at the address
130  interrupted (SIGINT) before the end
138  the parameter server did not answer for ``--timeout_s``, or cannot listen on its address
143  SIGTERM before the end; 0 would report success if worker 0 leaves
==== ==================================================================================================
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress

from .config import ConfigError, read_tf_config
from .data import DataError, load_digits
from .options import parse_options
from .server import AddressUnavailableError, serve
from .stop import StopSignal
from .wire import ProtocolError
from .worker import ServerUnreachableError, Worker

MISUSE = 2
RETRYABLE = 138


def span(name: str, environ: Mapping[str, str]) -> AbstractContextManager[None]:
    """Return the context of a span in the trace of the job; of nothing without a receiver or without OpenTelemetry."""
    if environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        with suppress(ImportError):
            from .tracing import traced  # noqa: PLC0415 (a slow import)

            return traced(name, environ)
    return nullcontext()


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Play the role that ``TF_CONFIG`` names and return the exit code; ``arguments`` exclude the program's name."""
    options = parse_options(arguments)
    try:
        config = read_tf_config(environ)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return MISUSE
    try:
        with span(f"{'serve' if config.role == 'ps' else 'train'} {config.name}", environ):
            if config.role == "ps":
                return asyncio.run(serve(config=config, options=options))
            with StopSignal() as stop:
                return Worker(config=config, options=options, digits=load_digits(), stop=stop).run()
    except (ServerUnreachableError, AddressUnavailableError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return RETRYABLE
    except (DataError, ProtocolError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return MISUSE
