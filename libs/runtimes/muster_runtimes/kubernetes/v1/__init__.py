"""Generated messages of the proto package ``muster.kubernetes.v1``; see ``libs/rpc/generate.py``."""
