package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// idleness is how busy the machine was while nothing was measured.
type idleness struct{ busy []float64 }

// lookFor is how long one look takes.
const lookFor = 300 * time.Millisecond

// look waits a moment and notes what share of the processors was busy in it.
func (l *idleness) look(ctx context.Context) error {
	busy, all, err := processors()
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(lookFor):
	}
	busyThen, allThen, err := processors()
	if err != nil {
		return err
	}
	if n := allThen - all; n > 0 {
		l.busy = append(l.busy, float64(busyThen-busy)/float64(n))
	}
	return nil
}

func (l *idleness) median() float64 {
	if len(l.busy) == 0 {
		return 0
	}
	return middle(l.busy, func(x float64) float64 { return x })
}

// processors reads what all processors have been doing, in ticks.
func processors() (busy, all int64, err error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, err
	}
	return processorTimes(string(data))
}

// processorTimes reads the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq
// and steal. What the host took away counts as busy.
func processorTimes(stat string) (busy, all int64, err error) {
	line, _, _ := strings.Cut(stat, "\n")
	var n [8]int64
	if _, err := fmt.Sscanf(line, "cpu %d %d %d %d %d %d %d %d", &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6],
		&n[7]); err != nil {
		return 0, 0, fmt.Errorf("/proc/stat begins with %.80q: %w", line, err)
	}
	for i, v := range n {
		all += v
		if i != 3 && i != 4 {
			busy += v
		}
	}
	return busy, all, nil
}
