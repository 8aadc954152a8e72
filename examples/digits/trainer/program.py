"""From flags and environment to an exit code.

What an exit code means to whoever restarts replicas (1-127 permanent, 128 and above retryable) decides which is used:

==== =========================================================================================================================
code meaning
==== =========================================================================================================================
0    the role's work is done; from the chief (or worker 0), the target accuracy was reached
1    the target accuracy was missed: running it again would not help
2    something must be put right first: ``TF_CONFIG``, a flag, the data set, or what answers at the parameter server's address
130  interrupted (SIGINT), before the work was done
138  the parameter server did not answer for ``--patience_s``, or cannot listen on its address: worth another try
143  asked to leave (SIGTERM) before the work was done; 0 would tell the framework that a leaving worker 0 had succeeded
==== =========================================================================================================================
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence

from .config import ConfigError, read_tf_config
from .data import DataError, load_digits
from .options import parse_options
from .server import AddressUnavailableError, serve
from .stop import StopSignal
from .wire import ProtocolError
from .worker import ServerUnreachableError, Worker

MISUSE = 2
RETRYABLE = 138


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Play the role that ``TF_CONFIG`` names and return the exit code; ``arguments`` are without the program's name."""
    options = parse_options(arguments)
    try:
        config = read_tf_config(environ)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return MISUSE
    try:
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
