"""The life cycle of a job.

``reducer`` applies events to a job record, with ``transitions``, ``replicas``, ``commands``, ``progress`` and ``history``.
``decisions`` are those of the status-tracker, to end or restart a job, by ``success``, ``backoff`` and ``deadlines``.
``reconciliation`` compares a record with the replicas that a runtime observes, and ``adoption`` continues a record from them.
``job_kinds`` has the rules of builds and services.
"""

from muster_core.lifecycle.adoption import (
    ADOPTED as ADOPTED,
    HeldJob as HeldJob,
    OrphanMark as OrphanMark,
    RetainedJob as RetainedJob,
    RetainedMembership as RetainedMembership,
    adoption_of as adoption_of,
    is_behind as is_behind,
    retained_job as retained_job,
)
from muster_core.lifecycle.backoff import (
    AVOIDED_FOR_US as AVOIDED_FOR_US,
    avoided_at as avoided_at,
    was_disrupted as was_disrupted,
)
from muster_core.lifecycle.commands import RESTART_REQUESTED as RESTART_REQUESTED
from muster_core.lifecycle.deadlines import (
    START_TIMEOUT as START_TIMEOUT,
    Retention as Retention,
    expiry as expiry,
    late_additions as late_additions,
    start_due as start_due,
    start_timeout_of as start_timeout_of,
    unstarted as unstarted,
)
from muster_core.lifecycle.decisions import (
    DeleteRecord as DeleteRecord,
    Finish as Finish,
    LifecycleInstruction as LifecycleInstruction,
    Restart as Restart,
    decide as decide,
    next_deadline as next_deadline,
)
from muster_core.lifecycle.job_kinds import (
    BUILD_FAILED as BUILD_FAILED,
    WAITING_FOR_BUILD as WAITING_FOR_BUILD,
    address_of as address_of,
    awaits_build as awaits_build,
    is_build as is_build,
)
from muster_core.lifecycle.progress import MILLI as MILLI, SpeedUp as SpeedUp, speed_up_of as speed_up_of
from muster_core.lifecycle.reconciliation import (
    Report as Report,
    Start as Start,
    Step as Step,
    Stop as Stop,
    next_work as next_work,
    reconcile as reconcile,
)
from muster_core.lifecycle.reducer import (
    Transition as Transition,
    apply_event as apply_event,
    begins_record as begins_record,
)
from muster_core.lifecycle.success import restart_scope_of as restart_scope_of
from muster_core.lifecycle.transitions import ACTIVE_PHASES as ACTIVE_PHASES, WAITING_PHASES as WAITING_PHASES
