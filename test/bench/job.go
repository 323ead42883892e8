package main

import (
	"fmt"
	"strings"
	"time"
)

// job is something that moves content, and what it took.
type job struct {
	name string
	// of is how many bytes it is about, for a rate.
	of int64
	// took is from the order to the end, cpu what its processes used, memory the most that the one
	// with the most had; 0: not known.
	took, cpu time.Duration
	memory    int64
}

// jobs are what was measured, by rounds.
type jobs struct {
	// names are the jobs in the order of their first run.
	names   []string
	results map[string][]job
}

func (b *jobs) note(j job) {
	if b.results[j.name] == nil {
		b.names = append(b.names, j.name)
	}
	b.results[j.name] = append(b.results[j.name], j)
	say("%s: %.2f s", j.name, j.took.Seconds())
}

// table has a row for each job, with its rate against that of one of them.
func (b *jobs) table(against string) string {
	var out strings.Builder
	fmt.Fprintln(&out, "| | time | MB/s | against "+against+" | CPU per MiB | most memory of a process |\n"+
		"| --- | --- | --- | --- | --- | --- |")
	rateOf := func(j job) float64 { return float64(j.of) / 1e6 / j.took.Seconds() }
	base := 0.0
	for _, name := range b.names {
		if strings.HasPrefix(name, against) {
			base = middle(b.results[name], rateOf)
		}
	}
	for _, name := range b.names {
		all := b.results[name]
		seconds := middle(all, func(j job) float64 { return j.took.Seconds() })
		row := fmt.Sprintf("| %s | %.2f s | %.0f | %.2f |", name, seconds, middle(all, rateOf),
			middle(all, rateOf)/base)
		cpu, memory := middle(all, func(j job) float64 { return j.cpu.Seconds() * 1e3 / (float64(j.of) / mib) }),
			middle(all, func(j job) float64 { return float64(j.memory) / 1e6 })
		if cpu > 0 {
			row += fmt.Sprintf(" %.2f ms | %.0f MB |", cpu, memory)
		} else {
			row += " | |"
		}
		fmt.Fprintln(&out, row)
	}
	return out.String()
}
