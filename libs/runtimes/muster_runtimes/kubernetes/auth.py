"""The identity of pod-launcher towards the API server: the user of a kubeconfig, or the service account of its own pod.

The Kubernetes client library reads both. Its models are not used: they cost hundreds of microseconds per pod.
"""

from __future__ import annotations

import ssl
import time
from pathlib import Path

from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.incluster_config import load_incluster_config  # pyright: ignore[reportUnknownVariableType] (untyped in the library)
from kubernetes.aio.config.kube_config import load_kube_config  # pyright: ignore[reportUnknownVariableType] (untyped in the library)

_RENEW_AFTER_S = 600.0


class CredentialsError(Exception):
    """The kubeconfig or the service account cannot be used; the message says why."""


class Credentials:
    """Credentials of a ``kubeconfig``, or of the pod's service account if it is None."""

    def __init__(self, *, kubeconfig: Path | None, context: str = "") -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._configuration = Configuration()
        self._read_at = float("-inf")

    async def load(self) -> None:
        """Load the credentials. Raises ``CredentialsError``."""
        configuration = Configuration()
        try:
            if self._kubeconfig is None:
                load_incluster_config(client_configuration=configuration)
            elif self._kubeconfig.is_file():
                await load_kube_config(
                    config_file=str(self._kubeconfig),
                    context=self._context or None,
                    client_configuration=configuration,
                    persist_config=False,
                )
            else:
                raise CredentialsError(f"the kubeconfig {self._kubeconfig} does not exist")
        except (ConfigException, OSError, TypeError, KeyError) as error:
            where = str(self._kubeconfig or "the service account of this pod")
            raise CredentialsError(f"{where} cannot be used: {error}") from error
        self._configuration = configuration
        self._read_at = time.monotonic()

    @property
    def server(self) -> str:
        """The URL of the API server, without a trailing slash."""
        return str(self._configuration.host).rstrip("/")

    def ssl_context(self) -> ssl.SSLContext:
        """Return the TLS context: the trusted CAs and the client certificate."""
        return RESTClientObject(self._configuration).ssl_context

    async def authorization(self) -> str:
        """Return the ``Authorization`` header, renewed if due; empty for a client certificate."""
        if self._kubeconfig is not None and time.monotonic() - self._read_at > _RENEW_AFTER_S:
            await self.load()
        token = await self._configuration.get_api_key_with_prefix("BearerToken")
        if token:
            return str(token)
        if self._configuration.username:
            return str(self._configuration.get_basic_auth_token())
        return ""
