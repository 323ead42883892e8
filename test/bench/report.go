package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"ankole.storage/host/version"
)

// report is the table in the making.
type report struct {
	began  time.Time
	load   string // of the machine, at the beginning
	engine string
	rows   []string
	cpu    []string
	notes  []string
}

func newReport(engine string) *report {
	return &report{began: time.Now().UTC(), load: loadAverage(), engine: engine}
}

// loadAverage is what else the machine does.
func loadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(data))[:3], " ")
}

// measure takes one pattern from raw and both volumes, one right after the other.
func (r *report) measure(ctx context.Context, cfg config, p pattern, raw *raw, volumes ...*volume) error {
	base, err := raw.measure(ctx, p)
	if err != nil {
		return err
	}
	row := []string{p.name, p.text(base)}
	for _, v := range volumes {
		res, err := v.measure(ctx, p, cfg.each)
		if err != nil {
			return err
		}
		row = append(row, p.text(res), p.compare(base, res, v.replicas))
		if p.cpu {
			r.cpu = append(r.cpu, fmt.Sprintf("| processor time per request, %s, %s | %.0f µs |", p.name, v,
				float64(res.cpu)/1e3))
		}
	}
	line := "| " + strings.Join(row, " | ") + " |"
	say("%s", line)
	r.rows = append(r.rows, line)
	return nil
}

// memory notes what the processes take. It is a note and no result: a process that cannot be looked
// at is said so.
func (r *report) memory(when string, volumes ...*volume) {
	for _, v := range volumes {
		var sizes []string
		for i, pid := range v.pids() {
			name := "replica"
			if i == 0 {
				name = "engine"
			}
			n, err := pss(pid)
			if err != nil {
				sizes = append(sizes, name+" "+err.Error())
				continue
			}
			sizes = append(sizes, fmt.Sprintf("%s %.1f MB", name, float64(n)/1e6))
		}
		r.notes = append(r.notes, fmt.Sprintf("| memory (PSS) of idle processes, %s, %s | %s |", v, when,
			strings.Join(sizes, ", ")))
	}
}

// rebuild adds a replica and takes the time until it is in sync.
func (r *report) rebuild(v *volume, size int64) {
	added := v.AddReplica("vol-rebuilt1").Start()
	began := time.Now()
	v.Rebuild(added)
	took := time.Since(began)
	line := fmt.Sprintf("| rebuild of %d MiB, idle volume | %.2f s, %.0f MB/s |", size/mib, took.Seconds(),
		float64(size)/1e6/took.Seconds())
	say("%s", line)
	r.notes = append(r.notes, line)
}

// print writes the table to standard output and into the folder of results.
func (r *report) print(cfg config) error {
	var b strings.Builder
	fmt.Fprintln(&b, machine(r.began, r.load))
	fmt.Fprintf(&b, "%d MiB written in full, %s per measurement, raw by fio with %s.\n\n", cfg.size/mib, cfg.each,
		r.engine)
	fmt.Fprintf(&b, "| pattern | raw | 1 replica | against raw | 3 replicas | against raw (writes: raw/3) |\n| --- | "+
		"--- | --- | --- | --- | --- |\n%s\n\n",
		strings.Join(r.rows, "\n"))
	fmt.Fprintf(&b, "Latencies are medians, of write + flush the mean of both together.\n\n| | |\n| --- | --- |\n%s\n",
		strings.Join(append(r.cpu, r.notes...), "\n"))
	fmt.Print(b.String())
	return keep(cfg, r.began, b.String())
}

// machine says where and when something was measured.
func machine(began time.Time, load string) string {
	return fmt.Sprintf("Measured %s, version %s (%.12s), %d CPUs, %s/%s, Linux %s, load average %s before and %s after.",
		began.Format(time.RFC3339), version.Version, version.GitCommit, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH,
		kernel(), load, loadAverage())
}

func kernel() string {
	data, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(data))
}
