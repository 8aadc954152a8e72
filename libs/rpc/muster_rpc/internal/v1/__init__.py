"""Generated stubs of the proto package ``muster.internal.v1``; see ``libs/rpc/generate.py``."""
