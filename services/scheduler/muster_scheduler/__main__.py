from muster_scheduler.service import build
from muster_scheduler.settings import SchedulerSettings
from muster_service.app import run_app

if __name__ == "__main__":
    run_app(build, settings=SchedulerSettings, service="scheduler")
