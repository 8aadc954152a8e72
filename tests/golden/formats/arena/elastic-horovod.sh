# Elastic Horovod. Source: Arena's user guide, "submit an elastic training job", and the help of `arena submit etjob`.
arena submit etjob \
    --name=elastic-training \
    --gpus=1 \
    --workers=3 \
    --max-workers=9 \
    --min-workers=1 \
    --image=horovod/elastic:1 \
    --working-dir=/examples \
    "horovodrun
    -np \$((\${workers}*\${gpus}))
    --min-np \$((\${minWorkers}*\${gpus}))
    --max-np \$((\${maxWorkers}*\${gpus}))
    --host-discovery-script /etc/mpi/discover_hosts.sh
    python train.py"
