"""What jobs used and what that cost: accounts made from states and samples, reports, estimates, budgets.

Pure: `history` keeps accounts, engines measure, `client/history/accounts` brings both together.
"""
