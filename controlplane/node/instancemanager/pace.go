package instancemanager

import (
	"reflect"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

const (
	// pausePerProcess is what a change of an object's list has to wait on average, for each process in
	// it, while changes go on that only say that processes begin. All of the list is written, checked
	// and sent to every manager again: of 400 processes for a quarter of a second of a core.
	pausePerProcess = 5 * time.Millisecond
	// changesAhead are so many that need not wait after a time without any: one volume that attaches
	// makes no more.
	changesAhead = 3
	// startPause is how long a process that starts is not told of: the change after it says that it
	// runs.
	startPause = 200 * time.Millisecond
)

// pace spaces out what the controller is shown of a list of processes.
type pace struct {
	paid time.Time // until when the pauses of all changes so far last
}

// pauseOf is the pause for one change of a list.
func pauseOf(p *Processes) time.Duration {
	return pausePerProcess * time.Duration(len(p.Engines)+len(p.Replicas))
}

// shown notes that the controller is shown a list. Changes that may not wait use up the pauses of
// others, and no more: a change never waits longer than one pause.
func (c *pace) shown(now time.Time, list *Processes) {
	ahead := max(c.paid.Sub(now), 0) + pauseOf(list)
	c.paid = now.Add(min(ahead, changesAhead*pauseOf(list)))
}

// wait is how long the controller is not shown yet what is known. Only processes that begin wait.
func (c *pace) wait(now time.Time, shown, known *Processes) time.Duration {
	if shown == nil {
		return 0
	}
	least := c.paid.Sub(now) - (changesAhead-1)*pauseOf(shown)
	switch max(news(shown.Engines, known.Engines), news(shown.Replicas, known.Replicas)) {
	case begun:
		return max(least, startPause)
	case up:
		return least
	default:
		return 0
	}
}

// tidings are what is new of processes; the greatest counts.
type tidings int

const (
	begun tidings = iota // nothing, or that some start
	up                   // that some run
	other                // for example that some have ended
)

// news compares the processes of a kind.
func news(shown, known map[string]v1beta2.InstanceProcess) tidings {
	most := begun
	for name := range shown {
		if _, there := known[name]; !there {
			return other
		}
	}
	for name, now := range known {
		before, there := shown[name]
		if reflect.DeepEqual(before, now) {
			continue
		}
		state := now.Status.State
		if there {
			before.Status.State = state
			before.Status.PortStart, before.Status.PortEnd = now.Status.PortStart, now.Status.PortEnd
			if shown[name].Status.State != v1beta2.InstanceStateStarting || !reflect.DeepEqual(before, now) {
				return other
			}
		}
		switch state {
		case v1beta2.InstanceStateStarting:
		case v1beta2.InstanceStateRunning:
			most = up
		default:
			return other
		}
	}
	return most
}
