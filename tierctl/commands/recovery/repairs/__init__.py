"""The repairs that `verify --plan-out` plans: `repair` decides them, `plan` collects what needs one."""
