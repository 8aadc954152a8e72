"""An asynchronous parameter server and its workers, in NumPy.

The thread limits are set here because BLAS reads them once, when NumPy is first imported. The matrices are small, so more
threads would only take cores from other replicas.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"
