"""Generated stubs of the proto package ``muster.v1``; see ``libs/rpc/generate.py``."""
