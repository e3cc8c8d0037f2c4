"""Write partition logs into a formatted node, and finally the topics into its bootstrap file."""
