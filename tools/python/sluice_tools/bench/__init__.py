"""`sluice bench`: measurements that a reader can repeat."""
