"""The judgement of an installation: what is wrong with its broker, streams and services, and what mends it.

``examine(facts)`` is pure; the gateway gathers the facts for ``muster doctor``.
"""

from muster_core.installation.examination import examine as examine
from muster_core.installation.facts import (
    BrokerFacts as BrokerFacts,
    BrokerServer as BrokerServer,
    ClockFacts as ClockFacts,
    ConsumerFacts as ConsumerFacts,
    Copy as Copy,
    InstallationFacts as InstallationFacts,
    InstanceFacts as InstanceFacts,
    Lease as Lease,
    RuntimeFacts as RuntimeFacts,
    StreamFacts as StreamFacts,
)
from muster_core.installation.findings import Finding as Finding, FindingStatus as FindingStatus
