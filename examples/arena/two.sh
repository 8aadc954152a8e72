# Two jobs of one script: a PyTorch job, and one with the older flags, in camel case.
arena submit pytorchjob --name=pytorch --workers=3 --cpu=100m --memory=64Mi "python -m examples.polyaxon.ranks"

arena submit \
    --mode=standalone \
    --name=standalone \
    --env GREETING='good day' \
    --workingDir=examples \
    'echo "$GREETING from $(pwd)"'
