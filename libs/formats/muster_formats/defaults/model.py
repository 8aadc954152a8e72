"""What the platform's defaults are: three fields for each of three categories."""

from __future__ import annotations

from typing import Any

import msgspec

from muster_core.models import Category, Toleration


class CategoryDefaults(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the replicas of one category have where they say nothing; ``node_affinity`` is a raw Kubernetes NodeAffinity."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    node_affinity: dict[str, Any] = {}


class PlatformDefaults(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The defaults of every category."""

    experiments: CategoryDefaults = CategoryDefaults()
    jobs: CategoryDefaults = CategoryDefaults()
    builds: CategoryDefaults = CategoryDefaults()

    def of(self, category: Category) -> CategoryDefaults:
        """Those of one category."""
        by_category = {
            Category.EXPERIMENTS: self.experiments,
            Category.JOBS: self.jobs,
            Category.BUILDS: self.builds,
        }
        return by_category[category]
