"""What jobs used and what that cost: accounts built from states and samples, reports, estimates, budgets.

Pure: `history` stores accounts, engines measure, `client/history/accounts` combines both.
"""
