"""What a user asks for: the job, its fields and their types."""
