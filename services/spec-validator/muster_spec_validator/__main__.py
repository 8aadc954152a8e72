from muster_service.app import run_app
from muster_spec_validator.service import build
from muster_spec_validator.settings import SpecValidatorSettings

if __name__ == "__main__":
    run_app(build, settings=SpecValidatorSettings, service="spec-validator")
