"""What a framework is told, and what is built, in the native form -> the model; places noted for the rules."""

from __future__ import annotations

from muster_core.models import Build, FrameworkOptions, Rendezvous
from muster_formats.native.option_keys import BuildKeys, OptionKeys, RendezvousKeys
from muster_formats.places import Place, Places
from muster_formats.table import Section

_OPTION_PLACES = {
    "processes": OptionKeys.processes,
    "rendezvous": OptionKeys.rendezvous,
    "sparse_cluster": OptionKeys.sparse_cluster,
    "evaluator_in_cluster": OptionKeys.evaluator_in_cluster,
    "model_dir": OptionKeys.model_dir,
    "parameters": OptionKeys.parameters,
}


def read_options(section: Section | None, places: Places) -> FrameworkOptions:
    """Read ``options``."""
    if section is None:
        return FrameworkOptions()
    for field, declared in _OPTION_PLACES.items():
        places.note(Place(field), section.cursor.key_spot(declared.key), declared.key)
    rendezvous = section.get(OptionKeys.rendezvous)
    return FrameworkOptions(
        processes=section.get(OptionKeys.processes) or "",
        rendezvous=_rendezvous(rendezvous, places) if rendezvous else None,
        sparse_cluster=section.get(OptionKeys.sparse_cluster) or False,
        evaluator_in_cluster=section.get(OptionKeys.evaluator_in_cluster) or False,
        model_dir=section.get(OptionKeys.model_dir) or "",
        conventions=tuple(dict.fromkeys(section.get(OptionKeys.conventions) or ())),
        parameters=section.get(OptionKeys.parameters) or {},
    )


def read_build(section: Section | None) -> Build | None:
    """Read ``build``."""
    if section is None:
        return None
    return Build(
        base=section.get(BuildKeys.base) or "",
        image=section.get(BuildKeys.image) or "",
        steps=tuple(section.get(BuildKeys.steps) or ()),
        env=section.get(BuildKeys.env) or {},
    )


def _rendezvous(section: Section, places: Places) -> Rendezvous:
    for key in (RendezvousKeys.backend.key, RendezvousKeys.conf.key):
        places.note(Place(key), section.cursor.key_spot(key), key)
    backend = section.get(RendezvousKeys.backend)
    return Rendezvous(
        backend=Rendezvous().backend if backend is None else backend,
        host=section.get(RendezvousKeys.host) or "",
        port=section.get(RendezvousKeys.port),
        job_id=section.get(RendezvousKeys.id) or "",
        conf=section.get(RendezvousKeys.conf) or {},
        max_restarts=section.get(RendezvousKeys.max_restarts),
        standalone=section.get(RendezvousKeys.standalone) or False,
    )
