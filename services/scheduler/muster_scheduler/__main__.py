from muster_runtime.app import run_app
from muster_scheduler.service import build
from muster_scheduler.settings import SchedulerSettings

if __name__ == "__main__":
    run_app(build, settings=SchedulerSettings, service="scheduler")
