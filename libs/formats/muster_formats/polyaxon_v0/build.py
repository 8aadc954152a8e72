"""``build`` of Polyaxon 0.x: an image, or a job that builds one.

The name of the built image is derived from its inputs, so the same steps over the same image give the same
name.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import msgspec

from muster_core.models import Build
from muster_formats.polyaxon_v0.env import Env, read_env
from muster_formats.polyaxon_v0.keys import BuildFieldKeys, BuildKeys
from muster_formats.schema import Section


@dataclass(frozen=True, kw_only=True)
class Image:
    """The ``base`` image, the build ``steps`` and the variables in it; ``env`` is the environment of the build job."""

    base: str = ""
    steps: tuple[str, ...] = ()
    tell: dict[str, str]
    env: Env

    def build(self, name: str) -> Build:
        """Return what the build job of job ``name`` makes."""
        made_of = msgspec.json.encode((self.base, self.steps, sorted(self.tell.items())))
        tag = hashlib.sha256(made_of).hexdigest()[:12]
        image = f"{name}:{tag}" if self.steps else self.base
        return Build(base=self.base, image=image, steps=self.steps, env=self.tell)


def read_image(section: Section | None) -> Image:
    """Read the fields of a build from any table that has them."""
    if section is None:
        return Image(tell={}, env=Env())
    if section.get(BuildFieldKeys.image) is None and not section.given(BuildFieldKeys.dockerfile):
        section.cursor.missing("image", "image is missing", "add image: python:3.11")
    language = section.get(BuildFieldKeys.lang_env)
    spoken = dict.fromkeys(("LC_ALL", "LANG", "LANGUAGE"), language) if language else {}
    return Image(
        base=section.get(BuildFieldKeys.image) or "",
        steps=tuple(section.get(BuildFieldKeys.build_steps) or ()),
        tell={**spoken, **(section.get(BuildFieldKeys.env_vars) or {})},
        env=read_env(section.get(BuildKeys.environment)),
    )
