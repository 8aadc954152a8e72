# The digit classifier: a parameter server and two workers.
arena submit tfjob \
    --name=tfjob \
    --workers=2 --worker-cpu=200m --worker-memory=128Mi \
    --ps=1 --ps-cpu=200m --ps-memory=128Mi \
    "python examples/digits/train.py --global_steps=3000 --target_accuracy=0.9"
