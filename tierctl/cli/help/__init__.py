"""The commands as generated data, and what is answered from it: help texts and shell completion."""
