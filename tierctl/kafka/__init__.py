"""A running Kafka cluster: clients with Kafka's own settings, admin, leaders, topic reader, publisher.

Nothing here depends on tiering.
"""
