"""What a running application reports to others: log, metrics, hooks, OTLP, OpenLineage and systemd."""
