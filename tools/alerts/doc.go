// Package alerts checks what deploy/monitoring has for Prometheus and Grafana, with Prometheus' own
// parsers: the alert rules as Prometheus loads them, and every expression of rules and dashboard
// against the table of metrics in docs/guide/metrics.md. It has tests only.
package alerts
