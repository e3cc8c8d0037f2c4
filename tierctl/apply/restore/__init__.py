"""Write the logs of partitions into a formatted node, and the topics into its bootstrap file, as the last."""
