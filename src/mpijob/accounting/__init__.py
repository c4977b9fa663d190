"""What jobs used and what that cost: accounts built from states and samples, reports, estimates, budgets.

No input or output: `history/account_store` stores accounts, engines measure usage, and
`client/history/accounts` combines both.
"""
