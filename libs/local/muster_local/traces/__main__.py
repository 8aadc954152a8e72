from muster_local.traces.service import SinkSettings, build
from muster_service.app import run_app

if __name__ == "__main__":
    run_app(build, settings=SinkSettings, service="sink", traced=False)
