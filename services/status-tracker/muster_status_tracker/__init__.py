"""The status-tracker: owns the life cycle and the record of each job, and answers queries."""
