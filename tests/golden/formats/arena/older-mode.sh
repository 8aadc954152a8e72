# The first form of the command line: --mode, and flags in camel case. A program of this machine, without an image.
arena submit --mode=tensorflow --name=older --workers=2 --workerCpu=1 --workerMemory=512Mi --workerPort=2300 \
  --ps=1 --psCpu=500m --workingDir=/srv python train.py
