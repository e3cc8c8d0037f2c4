"""Plan the repairs for `verify --plan-out`: `plan` collects the findings, `repair` decides the repairs."""
