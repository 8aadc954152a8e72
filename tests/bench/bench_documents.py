"""The jobs that benchmarks submit, as users write them."""


def job(name: str, *command: str, cpu: str = "100m", low: int = 1, high: int = 1) -> str:
    """Return a native document with one role of `low` workers that may grow to `high`, each running `command`."""
    words = ", ".join(f'"{word}"' for word in command)
    return f"""\
apiVersion: muster.dev/v1
kind: Job
metadata:
  name: {name}
spec:
  framework: plain
  roles:
    worker:
      replicas: {low}
      min: {low}
      max: {high}
      image: python:3.11-slim
      command: [{words}]
      resources: {{cpu: {cpu}, memory: 64Mi}}
"""


def never_placed(name: str) -> str:
    """Return a job that fits on no node: everything but its replicas is real."""
    return job(name, "true", cpu="10000")
