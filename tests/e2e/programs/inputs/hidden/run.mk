run:
	@./$(PROGRAM)
