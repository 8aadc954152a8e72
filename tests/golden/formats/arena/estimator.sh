# An estimator with a chief and an evaluator, today's spelling.
# Source: Arena's user guide, "submit an estimator TFJob", and the help of `arena submit tfjob`.
arena submit tfjob \
  --name estimator \
  --namespace vision \
  --image registry.example/estimator:1 \
  --gpus 1 \
  --workers 3 --worker-cpu 2 --worker-cpu-limit 4 --worker-memory 8Gi --worker-selector disk=ssd \
  --ps 2 --ps-cpu 500m --ps-memory-limit 2Gi --ps-port 22223 \
  --chief --chief-cpu 1 \
  --evaluator --evaluator-memory 1Gi \
  --selector zone=a \
  --toleration gpu=yes:NoSchedule,Equal --toleration spot \
  --env STEPS=100 -e NAME='a b' \
  --label team=vision --annotation example.com/owner=Zoe \
  --priority 10 --queue research/vision \
  --retry 2 --clean-task-policy All --success-policy AllWorkers \
  --running-timeout 2h30m --starting-timeout 90s --ttl-after-finished 1h \
  --share-memory 1Gi \
  'python estimator.py'
