"""The commands as generated data, from which help texts and shell completions are made."""
