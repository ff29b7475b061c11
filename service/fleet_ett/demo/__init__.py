"""A small real training run with a kill and a hang, through collectors, service and books (`fleet-ett demo`)."""
