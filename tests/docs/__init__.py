"""The README and the manual: command lines run, figures are measured, and names exist."""
