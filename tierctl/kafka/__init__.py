"""A running Kafka cluster: clients with Kafka's own settings, admin, leaders, topic reader and publisher.

Other packages use `cluster.Cluster`, `client_settings.ClientSettings` and the classes for one topic.
"""
