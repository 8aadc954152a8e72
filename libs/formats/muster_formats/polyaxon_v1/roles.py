"""Build a role from one replica type of Polyaxon 1.x."""

from __future__ import annotations

from dataclasses import dataclass, field

from muster_core.models import Port, RestartPolicy, Role
from muster_formats.locations import FieldLocations, JobField
from muster_formats.polyaxon_v1.pod import PodReader
from muster_formats.polyaxon_v1.run_keys import PodKeys, PodRestart, ReplicaKeys
from muster_formats.schema import Section


@dataclass
class RoleReader:
    """Reads roles and records their source locations.

    The restart policy is ``said`` unless the pod's is Always, else the pod's, else ``unsaid``. ``priorities`` collects
    the priorities of their environments.
    """

    pods: PodReader
    places: FieldLocations
    unsaid: RestartPolicy
    said: RestartPolicy | None
    priorities: list[int] = field(default_factory=list[int])

    def read(
        self,
        name: str,
        section: Section,
        *,
        word: str = "",
        ports: tuple[Port, ...] = (),
        command: tuple[str, ...] = (),
    ) -> Role:
        """Read one role, which messages call ``word``."""
        at = section.cursor
        for bound in ("replicas", "min", "max"):
            self.places.record(
                JobField(bound, name), at.key_location(ReplicaKeys.replicas.key), f"{word or name}.replicas"
            )
        self.places.record(JobField("role", name), at.location)
        container = section.at(PodKeys.container.key)
        for part in ("template", "resources"):
            self.places.record(JobField(part, name), container.location if container else at.location)
        replica = self.pods.read(section, ports, command)
        if replica.priority is not None:
            self.priorities.append(replica.priority)
        counted = ReplicaKeys.replicas.key in section.table.fields()
        said = section.get(ReplicaKeys.replicas) if counted else None
        count = 1 if said is None else said
        return Role(
            name=name,
            replicas=count,
            min=count,
            max=count,
            template=replica.template,
            restart_policy=self._restart(replica.restart),
        )

    def _restart(self, said: PodRestart | None) -> RestartPolicy:
        if self.said is not None and said is not PodRestart.ALWAYS:
            return self.said
        return RestartPolicy(said.value) if said else self.unsaid
