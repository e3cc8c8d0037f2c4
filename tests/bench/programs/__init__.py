"""Programs that rows run, each a process of its own that times its work without its start-up."""
