"""What all tests share: the requirement marks. Builders and fixtures live beside the tests that use them."""

pytest_plugins = ["tools.requirement_marks"]
