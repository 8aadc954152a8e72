# Distributed TensorFlow with code from git and TensorBoard, in the older spelling of the flags.
# Source: Arena's user guide, "submit a distributed TensorFlow job".
arena submit tf --name=tf-dist-git              \
              --gpus=1 \
              --workers=2 \
              --workerImage=tensorflow/tensorflow:1.5.0-devel-gpu \
              --syncMode=git \
              --syncSource=https://github.com/cheyang/tensorflow-sample-code.git \
              --ps=1 \
              --psImage=tensorflow/tensorflow:1.5.0-devel \
              --tensorboard \
              --data tfdata:/mnt \
              --logdir /mnt/logs \
              "python code/tensorflow-sample-code/tfjob/docker/v1alpha2/distributed-mnist/main.py --log_dir=/mnt/logs"
