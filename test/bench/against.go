package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// side is one of two engine programs that are compared, with its volumes.
type side struct {
	name    string
	volumes []*volume
}

// series are the results of one pattern on one volume of a side, one of each round.
type series []result

// middle is the median of what results say.
func middle[R any, T cmp.Ordered](s []R, of func(R) T) T {
	all := make([]T, len(s))
	for i, r := range s {
		all[i] = of(r)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func rate(r result) float64              { return r.perSecond }
func processor(r result) time.Duration   { return r.cpu }
func typicalOf(r result) time.Duration   { return r.typical }
func ratio(before, after float64) string { return fmt.Sprintf("%.2f", after/before) }

// runAgainst measures the present engine program beside an earlier one, in rounds. Within a round a
// pattern is measured on both within the same seconds, and who is first changes with the round: so
// what else the machine does meets both.
func runAgainst(ctx context.Context, cfg config, t *stand) error {
	began, load := time.Now().UTC(), loadAverage()
	sides := []*side{{name: "before"}, {name: "now"}}
	for i, program := range []string{cfg.against, ""} {
		for _, replicas := range []int{1, 3} {
			v, err := prepare(ctx, t, replicas, cfg.size, program)
			if err != nil {
				return err
			}
			if err := v.fill(ctx); err != nil {
				return err
			}
			sides[i].volumes = append(sides[i].volumes, v)
		}
	}
	var rows []string
	for n := range sides[0].volumes {
		for _, p := range cfg.patterns() {
			results := [2]series{}
			for round := range cfg.rounds {
				for k := range sides {
					i := (k + round) % len(sides)
					r, err := sides[i].volumes[n].measure(ctx, p, cfg.each)
					if err != nil {
						return fmt.Errorf("%s: %w", sides[i].name, err)
					}
					results[i] = append(results[i], r)
				}
			}
			row := p.against(sides[0].volumes[n].String(), results[0], results[1])
			say("%s", row)
			rows = append(rows, row)
		}
	}
	text := fmt.Sprintf("%s\nThis program against %s: medians of %d rounds by turns, %s each, %d MiB written in full.\n\n"+
		"| volume | pattern | before | now | now/before | CPU before | CPU now | now/before |\n"+
		"| --- | --- | --- | --- | --- | --- | --- | --- |\n%s\n",
		machine(began, load), filepath.Base(filepath.Dir(cfg.against)), cfg.rounds, cfg.each,
		cfg.size/mib, strings.Join(rows, "\n"))
	fmt.Print(text)
	return keep(cfg, began, ".md", text)
}

// against is the row of a pattern.
func (p pattern) against(volume string, before, now series) string {
	first, second := result{perSecond: middle(before, rate), typical: middle(before, typicalOf)},
		result{perSecond: middle(now, rate), typical: middle(now, typicalOf)}
	change := ratio(first.perSecond, second.perSecond)
	if p.latency {
		change = ratio(float64(first.typical), float64(second.typical))
	}
	cpu := [2]time.Duration{middle(before, processor), middle(now, processor)}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %.1f µs | %.1f µs | %s |", volume, p.name, p.text(first),
		p.text(second), change, float64(cpu[0])/1e3, float64(cpu[1])/1e3, ratio(float64(cpu[0]), float64(cpu[1])))
}

// spread is the least, the median and the most of what results say.
func (s series) spread(latency bool) (low, mid, high result) {
	all := slices.Clone(s)
	slices.SortFunc(all, func(a, b result) int {
		if latency {
			return cmp.Compare(a.typical, b.typical)
		}
		return cmp.Compare(a.perSecond, b.perSecond)
	})
	return all[0], all[len(all)/2], all[len(all)-1]
}

// keep writes a file into the folder of results.
func keep(cfg config, began time.Time, ending, text string) error {
	if cfg.results == "" {
		return nil
	}
	if err := os.MkdirAll(cfg.results, 0o755); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	name := filepath.Join(cfg.results, began.Format("20060102-150405")+ending)
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	say("written to %s", name)
	return nil
}
