package instancemanager

import (
	"reflect"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

const (
	// pausePerProcess is the least time between two changes of an object's list, for each process in
	// it, where a change only says that processes begin. All of the list is written, checked and sent
	// to every manager again: of 400 processes for half a second of a core.
	pausePerProcess = 3 * time.Millisecond
	// startPause is how long a process that starts is not told of: the change after it says that it
	// runs.
	startPause = 200 * time.Millisecond
)

// pause is how long the controller is not shown yet what is known, where the last that it is shown
// is so old. Only processes that begin wait.
func pause(shown, known *Processes, old time.Duration) time.Duration {
	if shown == nil {
		return 0
	}
	engines, replicas := news(shown.Engines, known.Engines), news(shown.Replicas, known.Replicas)
	least := pausePerProcess*time.Duration(len(known.Engines)+len(known.Replicas)) - old
	switch max(engines, replicas) {
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
