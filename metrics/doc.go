// Package metrics serves what Prometheus asks a process of the control plane for, at /metrics.
//
// The leader has all objects in memory and reports them all (gather), at most once in figuresLife
// however many ask (Board). No scrape asks the API server for an object. Every process reports what
// it counts about itself.
//
// To the objects the leader adds what others have to be asked for: the rates of the engines
// (performance), from their instance managers, and the CPU and memory that nodes and Pods use, from
// the metrics API of the cluster (usage). Both are bounded in time and in number and are kept for a
// few seconds. Whoever does not answer in time has no sample; it never gets a zero.
//
// Definitions is the table of all metrics. docs/guide/metrics.md shows it.
package metrics
