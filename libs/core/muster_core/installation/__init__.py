"""The examination of an installation: what is wrong with its broker, streams and services, and what fixes it.

``examine`` is pure; the gateway observes the installation for ``muster doctor``.
"""

from muster_core.installation.examination import examine as examine
from muster_core.installation.observed import (
    BrokerServer as BrokerServer,
    ClockOffset as ClockOffset,
    Installation as Installation,
    LeaseHolder as LeaseHolder,
    ObservedBroker as ObservedBroker,
    ObservedConsumer as ObservedConsumer,
    ObservedInstance as ObservedInstance,
    ObservedRuntime as ObservedRuntime,
    ObservedStream as ObservedStream,
    StreamReplica as StreamReplica,
)
from muster_core.installation.results import CheckResult as CheckResult, CheckStatus as CheckStatus
