from muster_pod_launcher.service import build
from muster_pod_launcher.settings import PodLauncherSettings
from muster_service.app import run_app

if __name__ == "__main__":
    run_app(build, settings=PodLauncherSettings, service="pod-launcher")
