"""Other launchers: arena, SageMaker, Azure ML."""
