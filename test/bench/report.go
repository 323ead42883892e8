package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"ankole.storage/host/version"
)

// subject is something that a pattern is measured on.
type subject interface {
	// String names it in tables.
	String() string
	measure(ctx context.Context, p pattern, each time.Duration) (result, error)
	// against is what its results are compared with, nil for none, and by how much less it can do
	// where it writes, since several replicas share one disk.
	against() (subject, int)
}

// report is the table in the making.
type report struct {
	began    time.Time
	load     string // of the machine, at the beginning
	engine   string
	subjects []subject
	rows     []measured
	notes    []string
	idle     idleness
}

// measured is a pattern with the results of all rounds on each subject.
type measured struct {
	pattern
	results []series
}

func newReport(engine string, subjects ...subject) *report {
	return &report{began: time.Now().UTC(), load: loadAverage(), engine: engine, subjects: subjects}
}

// loadAverage is what else the machine does.
func loadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(data))[:3], " ")
}

// measure takes one pattern from all subjects, in rounds. Within a round they are measured one
// right after the other, and who is first changes with the round: so what else the machine does
// meets all of them.
func (r *report) measure(ctx context.Context, cfg config, p pattern) error {
	m := measured{p, make([]series, len(r.subjects))}
	for round := range cfg.rounds {
		if err := r.idle.look(ctx); err != nil {
			return err
		}
		for k := range r.subjects {
			i := (k + round) % len(r.subjects)
			res, err := r.subjects[i].measure(ctx, p, cfg.each)
			if err != nil {
				return fmt.Errorf("%s: %w", r.subjects[i], err)
			}
			m.results[i] = append(m.results[i], res)
		}
	}
	r.rows = append(r.rows, m)
	say("%s", r.row(&m))
	return nil
}

// busyAt is the share of the processors from which on a machine is too busy for ratios, while
// nothing of this program runs.
const busyAt = 0.1

// busy reports whether others kept the machine busy in half of the looks.
func (r *report) busy() bool { return r.idle.median() > busyAt }

// row writes a pattern: of each subject the median, the spread and the ratio.
func (r *report) row(m *measured) string {
	cells := []string{m.name}
	for i, s := range r.subjects {
		low, mid, high := m.results[i].spread(m.latency)
		cells = append(cells, fmt.Sprintf("%s (%s to %s)", m.text(mid), m.bare(low), m.bare(high)))
		if base, share := s.against(); base != nil {
			_, raw, _ := m.results[slices.Index(r.subjects, base)].spread(m.latency)
			cells = append(cells, m.compare(raw, mid, share))
		}
		if s, _ := s.against(); s != nil && r.busy() && !m.latency {
			cells[len(cells)-1] = "busy"
		}
	}
	return "| " + strings.Join(cells, " | ") + " |"
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

// perRequest are the processor times of those patterns where they are of interest.
func (r *report) perRequest() (lines []string) {
	for i := range r.rows {
		for k, s := range r.subjects {
			if cpu := middle(r.rows[i].results[k], processor); r.rows[i].cpu && cpu > 0 {
				lines = append(lines, fmt.Sprintf("| processor time per request, %s, %s | %.1f µs |", r.rows[i].name, s,
					float64(cpu)/1e3))
			}
		}
	}
	return lines
}

// print writes the table to standard output, and with all results into the folder of results.
func (r *report) print(cfg config) error {
	var b strings.Builder
	fmt.Fprintln(&b, machine(r.began, r.load))
	fmt.Fprintf(&b, "%d MiB written in full, %d rounds of %s by turns, medians and (least to most), raw by fio with %s.\n",
		cfg.size/mib, cfg.rounds, cfg.each, r.engine)
	fmt.Fprintf(&b, "Between measurements %.0f %% of the processors were busy.", 100*r.idle.median())
	if r.busy() {
		fmt.Fprint(&b, " That is too much for ratios: take the figures again when nothing else runs.")
	}
	fmt.Fprint(&b, "\n\n")
	head, line := "| pattern |", "| --- |"
	for _, s := range r.subjects {
		head, line = head+" "+s.String()+" |", line+" --- |"
		switch base, share := s.against(); {
		case base != nil && share > 1:
			head, line = fmt.Sprintf("%s against %s (writes: a %dth) |", head, base, share), line+" --- |"
		case base != nil:
			head, line = fmt.Sprintf("%s against %s |", head, base), line+" --- |"
		}
	}
	fmt.Fprintf(&b, "%s\n%s\n", strings.ReplaceAll(head, "3th", "third"), line)
	for i := range r.rows {
		fmt.Fprintln(&b, r.row(&r.rows[i]))
	}
	fmt.Fprintf(&b, "\nLatencies are medians, of write + flush the mean of both together.\n\n| | |\n| --- | --- |\n%s\n",
		strings.Join(append(r.perRequest(), r.notes...), "\n"))
	fmt.Print(b.String())
	if err := r.keepAll(cfg); err != nil {
		return err
	}
	return keep(cfg, r.began, ".md", b.String())
}

// one is a result as it is kept for programs. PerSecond counts requests, Typical is in ns, CPU in
// ns of all processes of a volume for one request.
type one struct {
	Pattern, Subject string
	Round            int
	PerSecond        float64
	Typical, CPU     time.Duration
}

// keepAll writes every result as JSON.
func (r *report) keepAll(cfg config) error {
	var all []one
	for i := range r.rows {
		for k, s := range r.subjects {
			for round, x := range r.rows[i].results[k] {
				all = append(all, one{r.rows[i].name, s.String(), round, x.perSecond, x.typical, x.cpu})
			}
		}
	}
	text, err := json.MarshalIndent(map[string]any{"machine": machine(r.began, r.load), "busy": r.idle.median(),
		"results": all}, "", " ")
	if err != nil {
		return err
	}
	return keep(cfg, r.began, ".json", string(text)+"\n")
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
