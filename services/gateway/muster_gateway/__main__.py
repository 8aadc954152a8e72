from muster_gateway.service import build
from muster_gateway.settings import GatewaySettings
from muster_service.app import run_app

if __name__ == "__main__":
    run_app(build, settings=GatewaySettings, service="gateway")
