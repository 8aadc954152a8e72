"""The files of an image."""

import tarfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from muster_testing.containers.engine import Engine


class ImageContents:
    """The files of ``image``, which are exported once to ``archive``."""

    def __init__(self, engine: Engine, image: str, archive: Path) -> None:
        container = engine.run("create", image).strip()
        try:
            engine.run("export", "--output", archive, container)
        finally:
            engine.run("rm", container)
        self._archive = archive

    @cached_property
    def members(self) -> Mapping[str, tarfile.TarInfo]:
        """The files, folders and links by their paths, without a leading slash."""
        with tarfile.open(self._archive) as archive:
            return {member.name: member for member in archive.getmembers()}

    def read(self, path: str) -> str:
        """Return the text of a file."""
        with tarfile.open(self._archive) as archive:
            file = archive.extractfile(path)
            if file is None:
                raise FileNotFoundError(path)
            return file.read().decode()
