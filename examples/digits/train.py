"""Train a digit classifier with an asynchronous parameter server.

One program plays every role, as TensorFlow's own samples do: it reads which one from ``TF_CONFIG``, so that a job document states
one command. Run it with ``--help`` for the flags.
"""

import os
import sys

from trainer.program import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
