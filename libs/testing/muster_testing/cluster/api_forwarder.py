"""Forwards the connections of a real node's pods to the API server, which listens on the loopback address of this machine.

python -I -S api_forwarder.py PLAN.json
"""

import asyncio
import json
import sys
import urllib.parse
from pathlib import Path

_CHUNK = 65_536


async def main(plan: dict[str, str]) -> None:
    """Serve on the node's address."""
    target = urllib.parse.urlsplit(plan["api_server"])

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(target.hostname, target.port)
        except OSError as error:
            sys.stderr.write(f"{target.netloc}: {error}\n")
            writer.close()
            return
        await asyncio.gather(_pass(reader, back), _pass(there, writer))

    address = plan["address"].partition("/")[0]
    server = await asyncio.start_server(forward, address, int(plan["api_server_port"]))
    await server.serve_forever()


async def _pass(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Copy until either end closes, and close the other."""
    try:
        while data := await source.read(_CHUNK):
            sink.write(data)
            await sink.drain()
    except OSError:
        pass
    finally:
        sink.close()


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
