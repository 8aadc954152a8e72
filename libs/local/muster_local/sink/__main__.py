from muster_local.sink.service import build
from muster_local.sink.settings import SinkSettings
from muster_service.app import run_app

if __name__ == "__main__":
    run_app(build, settings=SinkSettings, service="sink", traced=False)
