// Package metrics serves what Prometheus asks a manager for, at /metrics.
//
// Every object is reported by exactly one manager, that of the node that owns it, so a sum over all
// managers counts nothing twice. A manager does not keep the objects of the cluster in memory: only
// the leader does. The leader divides what it has into shares, one for each node (gather), at most
// once in shareLife however many managers ask (Board), and the other managers fetch theirs from it
// (Exporter). No scrape asks the API server for an object.
//
// To its share a manager adds what only it can ask: the rates of the engines whose volumes it
// reports (performance), from their instance managers, and the CPU and memory that its node and
// Pods use, from the metrics API of the cluster (usage). Both are bounded in time and in number and
// are kept for a few seconds. Whoever does not answer in time has no sample; it never gets a zero.
//
// Definitions is the table of all metrics. docs/metrics.md shows it.
package metrics
