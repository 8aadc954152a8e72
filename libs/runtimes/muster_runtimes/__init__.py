"""What runs replicas: processes of this machine, or pods of a Kubernetes cluster."""
