"""Programs that rows run as separate processes; each times its work without its start-up."""
