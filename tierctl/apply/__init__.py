"""The only code that changes anything."""
