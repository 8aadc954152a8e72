from muster_runtime.app import run_app
from muster_scaler.service import build
from muster_scaler.settings import ScalerSettings

if __name__ == "__main__":
    run_app(build, settings=ScalerSettings, service="scaler")
