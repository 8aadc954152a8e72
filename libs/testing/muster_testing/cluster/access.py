"""How to reach a cluster: addresses, certificates and credentials, and the files that hold them."""

from __future__ import annotations

import base64
import ssl
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import yaml

from muster_testing.cluster.rest import Rest, connected, trusting


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """The administrator's access; ``kubeconfig`` has the same content as the other fields.

    ``token`` is empty if the administrator uses ``certificate``, a PEM file with the certificate and its key.
    """

    kubeconfig: Path
    url: str
    ca_file: Path
    token: str
    certificate: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Return the TLS context."""
        context = trusting(self.ca_file)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate)
        return context

    def connect(self) -> AbstractAsyncContextManager[Rest]:
        """Open a session with the API server."""
        return connected(self.url, context=self.context(), token=self.token or None)


class UnusableKubeconfig(Exception):
    """The tests cannot use the kubeconfig."""


class _Context(msgspec.Struct, frozen=True):
    cluster: str
    user: str


class _Server(msgspec.Struct, frozen=True, rename="kebab"):
    server: str
    certificate_authority: str = ""
    certificate_authority_data: str = ""


class _User(msgspec.Struct, frozen=True, rename="kebab"):
    token: str = ""
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: _Context


class _NamedServer(msgspec.Struct, frozen=True):
    name: str
    cluster: _Server


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: _User


class _Kubeconfig(msgspec.Struct, frozen=True, rename="kebab"):
    current_context: str
    contexts: list[_NamedContext]
    clusters: list[_NamedServer]
    users: list[_NamedUser]


def read_kubeconfig(file: Path, *, folder: Path) -> Access:
    """Read the current context of a kubeconfig; inline data is written to ``folder``.

    Raises ``UnusableKubeconfig`` for an invalid kubeconfig, and for a context without a token and without a client certificate.
    """
    server, user = _current(file)
    ca = _content(server.certificate_authority_data, server.certificate_authority, beside=file.parent)
    if ca is None:
        raise UnusableKubeconfig(f"{file}: the cluster of the current context has no certificate authority")
    certificate = _content(user.client_certificate_data, user.client_certificate, beside=file.parent)
    key = _content(user.client_key_data, user.client_key, beside=file.parent)
    if not user.token and (certificate is None or key is None):
        raise UnusableKubeconfig(
            f"{file}: the user of the current context has neither a token nor a certificate"
        )
    folder.mkdir(parents=True, exist_ok=True)
    pair = (
        None
        if certificate is None or key is None
        else _private(folder / "client.pem", certificate + b"\n" + key)
    )
    ca_file = _private(folder / "ca.crt", ca)
    return Access(kubeconfig=file, url=server.server, ca_file=ca_file, token=user.token, certificate=pair)


def _current(file: Path) -> tuple[_Server, _User]:
    try:
        config = msgspec.convert(yaml.safe_load(file.read_text()), _Kubeconfig)
        context = {each.name: each.context for each in config.contexts}[config.current_context]
        server = {each.name: each.cluster for each in config.clusters}[context.cluster]
        user = {each.name: each.user for each in config.users}[context.user]
    except (msgspec.ValidationError, yaml.YAMLError, KeyError) as error:
        raise UnusableKubeconfig(f"{file}: {error}") from error
    return server, user


def _content(inline: str, path: str, *, beside: Path) -> bytes | None:
    """Return data that is inline in a kubeconfig or in a file next to it."""
    if inline:
        return base64.b64decode(inline)
    return (beside / path).read_bytes() if path else None


def _private(file: Path, content: bytes) -> Path:
    file.touch(0o600)
    file.write_bytes(content)
    return file


def write_tokens(file: Path, *, token: str) -> None:
    """Write the API server's token file, with an administrator's token."""
    file.write_text(f'{token},admin,admin,"system:masters"\n')
    file.chmod(0o600)


def write_kubeconfig(file: Path, *, url: str, ca_file: Path, token: str) -> None:
    """Write a kubeconfig with one context, which refers to the file of the certificate authority."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority": str(ca_file)}}],
        "users": [{"name": "admin", "user": {"token": token}}],
    }
    # JSON is valid YAML.
    file.write_bytes(msgspec.json.encode(content))
    file.chmod(0o600)
