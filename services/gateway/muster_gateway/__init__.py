"""The public API: authentication, idempotent submission, questions passed on."""
