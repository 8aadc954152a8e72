"""Train a digit classifier with an asynchronous parameter server.

One program plays every role, like TensorFlow's own samples: it reads its role from ``TF_CONFIG``, so a job document has
one command. ``--help`` lists the flags.
"""

import os
import sys

from trainer.program import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
