"""Who this launcher is to the API server: a kubeconfig's user, or the service account of its own pod.

The client library reads both; its models, which cost hundreds of microseconds for each pod, are not used.
"""

from __future__ import annotations

import ssl
import time
from pathlib import Path

from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.incluster_config import (
    load_incluster_config,  # pyright: ignore[reportUnknownVariableType] - the library's own lack
)
from kubernetes.aio.config.kube_config import (
    load_kube_config,  # pyright: ignore[reportUnknownVariableType] - the library's own lack
)

_RENEW_AFTER_S = 600.0


class CredentialsError(Exception):
    """Neither the kubeconfig nor the pod's service account can be used; the message says why."""


class Credentials:
    """What requests carry. ``kubeconfig`` is None within a pod."""

    def __init__(self, *, kubeconfig: Path | None, context: str = "") -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._configuration = Configuration()
        self._read_at = float("-inf")

    async def read(self) -> None:
        """Read them. Raises ``CredentialsError``."""
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
                raise CredentialsError(f"there is no kubeconfig {self._kubeconfig}")
        except (ConfigException, OSError, TypeError, KeyError) as error:
            where = str(self._kubeconfig or "the service account of this pod")
            raise CredentialsError(f"{where} cannot be used: {error}") from error
        self._configuration = configuration
        self._read_at = time.monotonic()

    @property
    def server(self) -> str:
        """The API server's URL, without a slash at its end."""
        return str(self._configuration.host).rstrip("/")

    def tls(self) -> ssl.SSLContext:
        """How the server is checked, and with which certificate this client presents itself."""
        return RESTClientObject(self._configuration).ssl_context

    async def header(self) -> str:
        """The value of ``Authorization``; empty where a certificate says it all."""
        if self._kubeconfig is not None and time.monotonic() - self._read_at > _RENEW_AFTER_S:
            await self.read()
        token = await self._configuration.get_api_key_with_prefix("BearerToken")
        if token:
            return str(token)
        if self._configuration.username:
            return str(self._configuration.get_basic_auth_token())
        return ""
