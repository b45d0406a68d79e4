"""Transactions: what they mean to change, and the commit that makes it so."""
