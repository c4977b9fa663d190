"""What jobs used and what that cost: accounts made from states and samples, reports, estimates, budgets.

Pure: `history` keeps accounts, engines measure, `client/accounts` brings both together.
"""
