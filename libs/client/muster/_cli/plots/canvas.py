"""A picture in memory, and as PNG (ISO/IEC 15948): true colour, not interlaced."""

from __future__ import annotations

import struct
import zlib

from muster._cli.plots import font

Colour = tuple[int, int, int]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_TRUE_COLOUR = 2


class Canvas:
    """``width`` by ``height`` points, white; (0, 0) is the upper left. What lies beside it is not drawn."""

    def __init__(self, width: int, height: int) -> None:
        self.width = width
        self.height = height
        self._rows = [bytearray(b"\xff" * (3 * width)) for _ in range(height)]

    def dot(self, x: int, y: int, colour: Colour) -> None:
        """Colour a point."""
        if 0 <= x < self.width and 0 <= y < self.height:
            self._rows[y][3 * x : 3 * x + 3] = bytes(colour)

    def line(self, start: tuple[int, int], end: tuple[int, int], colour: Colour, thickness: int = 1) -> None:
        """Draw a straight line."""
        (x, y), (last_x, last_y) = start, end
        steps = max(abs(last_x - x), abs(last_y - y), 1)
        for step in range(steps + 1):
            at_x = x + (last_x - x) * step // steps
            at_y = y + (last_y - y) * step // steps
            for across in range(thickness):
                for down in range(thickness):
                    self.dot(at_x + across, at_y + down, colour)

    def text(self, x: int, y: int, words: str, colour: Colour, scale: int = 2) -> None:
        """Write words whose upper left is at (x, y)."""
        for number, letter in enumerate(words):
            left = x + number * (font.WIDTH + 1) * scale
            for point_x, point_y in font.points(letter):
                for across in range(scale):
                    for down in range(scale):
                        self.dot(left + point_x * scale + across, y + point_y * scale + down, colour)

    def png(self) -> bytes:
        """The file."""
        header = struct.pack(">IIBBBBB", self.width, self.height, 8, _TRUE_COLOUR, 0, 0, 0)
        body = zlib.compress(b"".join(b"\0" + row for row in self._rows), 9)
        return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def text_width(words: str, scale: int = 2) -> int:
    """How many points words take across."""
    return len(words) * (font.WIDTH + 1) * scale


def _chunk(kind: bytes, content: bytes) -> bytes:
    checked = kind + content
    return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))
