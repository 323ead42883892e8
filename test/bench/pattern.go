package main

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// pattern is one way to use a disk.
type pattern struct {
	name       string
	read       bool
	sequential bool
	blockSize  int
	depth      int
	flush      bool // after every write
	// latency: the row compares latencies, otherwise rates.
	latency bool
	// cpu: the row also tells the processor time per request.
	cpu bool
}

var patterns = []pattern{
	{name: "4k random read, qd1", read: true, blockSize: 4096, depth: 1, latency: true},
	{name: "4k random read, qd16", read: true, blockSize: 4096, depth: 16},
	{name: "4k random read, qd64", read: true, blockSize: 4096, depth: 64, cpu: true},
	{name: "4k random write, qd1", blockSize: 4096, depth: 1, latency: true},
	{name: "4k random write, qd16", blockSize: 4096, depth: 16},
	{name: "4k random write, qd64", blockSize: 4096, depth: 64, cpu: true},
	{name: "4k write + flush, qd1", blockSize: 4096, depth: 1, flush: true, latency: true},
	{name: "128k sequential read, qd8", read: true, sequential: true, blockSize: 128 << 10, depth: 8},
	{name: "128k sequential write, qd8", sequential: true, blockSize: 128 << 10, depth: 8},
	{name: "1M sequential read, qd8", read: true, sequential: true, blockSize: mib, depth: 8},
	{name: "1M sequential write, qd8", sequential: true, blockSize: mib, depth: 8},
}

// patterns are those that are wanted.
func (c *config) patterns() (wanted []pattern) {
	only := regexp.MustCompile(c.only)
	for _, p := range patterns {
		if only.MatchString(p.name) {
			wanted = append(wanted, p)
		}
	}
	return wanted
}

// result of a pattern.
type result struct {
	perSecond float64
	// typical is the median latency of a request; with flushes the mean of write and flush together.
	typical time.Duration
	// cpu is the processor time of engine and replicas per request, 0 of raw.
	cpu time.Duration
}

// text writes a result as its row compares it.
func (p pattern) text(r result) string {
	switch {
	case p.latency:
		return fmt.Sprintf("%.0f µs", float64(r.typical)/1e3)
	case p.blockSize > 4096:
		return fmt.Sprintf("%.0f MB/s", r.perSecond*float64(p.blockSize)/1e6)
	}
	return fmt.Sprintf("%.1fk IOPS", r.perSecond/1e3)
}

// bare is text without its unit.
func (p pattern) bare(r result) string {
	text, _, _ := strings.Cut(p.text(r), " ")
	return text
}

// compare writes what a volume is worth against raw.
func (p pattern) compare(raw, r result, replicas int) string {
	if p.latency {
		return fmt.Sprintf("%+.0f µs", float64(r.typical-raw.typical)/1e3)
	}
	limit := raw.perSecond
	if !p.read {
		limit /= float64(replicas) // they share one disk
	}
	return fmt.Sprintf("%.2f", r.perSecond/limit)
}
