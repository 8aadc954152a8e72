"""How to reach a cluster: addresses, certificates and credentials, and the files that hold them."""

from __future__ import annotations

import ssl
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
from kubernetes.client.configuration import Configuration
from kubernetes.config.config_exception import ConfigException
from kubernetes.config.kube_config import load_kube_config  # pyright: ignore[reportUnknownVariableType] (untyped in the library)

from muster_testing.cluster.rest import Rest, connected, trusting


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """The administrator's access; ``kubeconfig`` has the same content as the other fields.

    ``token`` is empty if the administrator uses ``certificate``, the files of a certificate and of its key.
    """

    kubeconfig: Path
    url: str
    ca_file: Path
    token: str
    certificate: tuple[Path, Path] | None = None

    def context(self) -> ssl.SSLContext:
        """Return the TLS context."""
        context = trusting(self.ca_file)
        if self.certificate is not None:
            context.load_cert_chain(*self.certificate)
        return context

    def connect(self) -> AbstractAsyncContextManager[Rest]:
        """Open a session with the API server."""
        return connected(self.url, context=self.context(), token=self.token or None)


class UnusableKubeconfig(Exception):
    """The tests cannot use the kubeconfig."""


def read_kubeconfig(file: Path) -> Access:
    """Read the current context of a kubeconfig.

    Raises ``UnusableKubeconfig`` for an invalid kubeconfig, and for a context without a token and without a client certificate.
    """
    configuration = Configuration()
    try:
        load_kube_config(config_file=str(file), client_configuration=configuration, persist_config=False)
    except ConfigException as error:
        raise UnusableKubeconfig(f"{file}: {error}") from error
    if not configuration.ssl_ca_cert:
        raise UnusableKubeconfig(f"{file}: the cluster of the current context has no certificate authority")
    token = str(configuration.api_key.get("BearerToken", "")).removeprefix("Bearer ")
    certificate = tuple(Path(one) for one in (configuration.cert_file, configuration.key_file) if one)
    if not token and len(certificate) != 2:
        raise UnusableKubeconfig(
            f"{file}: the user of the current context has neither a token nor a certificate"
        )
    return Access(
        kubeconfig=file,
        url=str(configuration.host),
        ca_file=Path(configuration.ssl_ca_cert),
        token=token,
        certificate=certificate if len(certificate) == 2 else None,
    )


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
