"""Jobs as documents of other formats, with what a format cannot express.

``conversion``: the target formats and ``convert``. ``losses``: what is lost. ``pods``: pod templates. ``kubeflow`` and ``single_role``: the
writers.
"""

from muster_formats.export.conversion import TARGETS as TARGETS, Converted as Converted, convert as convert
