"""Sum over all ranks with Open MPI, called through ctypes, so that neither a compiler nor bindings are needed."""

import ctypes
import os


class Mpi:
    """The part of MPI that this program uses."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
        self._world = self._handle("ompi_mpi_comm_world")
        self._check(self._library.MPI_Init(None, None))

    def number(self, function: str) -> int:
        """Return the answer of ``MPI_Comm_rank`` or ``MPI_Comm_size``."""
        answer = ctypes.c_int()
        self._check(getattr(self._library, function)(self._world, ctypes.byref(answer)))
        return answer.value

    def sum(self, mine: int) -> int:
        """Return the sum of ``mine`` over all ranks."""
        given, answer = ctypes.c_int(mine), ctypes.c_int()
        whole, plus = self._handle("ompi_mpi_int"), self._handle("ompi_mpi_op_sum")
        self._check(
            self._library.MPI_Allreduce(
                ctypes.byref(given), ctypes.byref(answer), 1, whole, plus, self._world
            )
        )
        return answer.value

    def finish(self) -> None:
        """Wait for the other ranks and finalize."""
        self._check(self._library.MPI_Finalize())

    def _handle(self, symbol: str) -> object:
        return ctypes.byref(ctypes.c_char.in_dll(self._library, symbol))

    def _check(self, code: int) -> None:
        if code:
            raise RuntimeError(f"MPI answered {code}")


mpi = Mpi()
rank, size = mpi.number("MPI_Comm_rank"), mpi.number("MPI_Comm_size")
total = mpi.sum(rank + 1)
mpi.finish()
where = f"{os.environ['MUSTER_ROLE']}-{os.environ['MUSTER_INDEX']}"
print(f"rank {rank} of {size} in {where}: sum {total}", flush=True)
if size != 4 or total != 10 or where != f"worker-{rank // 2}":
    raise SystemExit("expected 4 ranks, two in each worker, and a sum of 10")
