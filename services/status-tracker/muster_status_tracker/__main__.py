from muster_service.app import run_app
from muster_status_tracker.service import build
from muster_status_tracker.settings import StatusTrackerSettings

if __name__ == "__main__":
    run_app(build, settings=StatusTrackerSettings, service="status-tracker")
