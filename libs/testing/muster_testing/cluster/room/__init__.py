"""What a real node needs of this machine, and how all of it is given back: scripts that run beside the tests, as root.

They need nothing but the standard library. ``caretaker`` is outside and cleans up; ``inside`` is the first process of the room.
"""
