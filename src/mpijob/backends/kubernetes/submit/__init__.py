"""Plan, create and retry the objects of a job."""
