from muster_scaler.service import build
from muster_scaler.settings import ScalerSettings
from muster_service.app import run_app

if __name__ == "__main__":
    run_app(build, settings=ScalerSettings, service="scaler")
