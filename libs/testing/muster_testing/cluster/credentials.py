"""The files by which programs and tests become the administrator of a control plane."""

from pathlib import Path

import msgspec


def write_tokens(file: Path, *, token: str) -> None:
    """Write the API server's list of static tokens: one, of an administrator."""
    file.write_text(f'{token},admin,admin,"system:masters"\n')
    file.chmod(0o600)


def write_kubeconfig(file: Path, *, url: str, ca_file: Path, token: str) -> None:
    """Write a kubeconfig with one context; its certificate authority is read when the file is used."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority": str(ca_file)}}],
        "users": [{"name": "admin", "user": {"token": token}}],
    }
    # JSON is YAML, and every reader of kubeconfigs reads YAML.
    file.write_bytes(msgspec.json.encode(content))
    file.chmod(0o600)
