"""`copy`: rolled segments from brokers' log directories, or from another tier, to the tier."""
