package instance

import (
	"context"
	"log/slog"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

// AskAgain is how soon an instance manager that has not answered is asked again.
const AskAgain = 5 * time.Second

// Answer is what an instance manager says of one process. The zero value: it was not asked, or has
// not answered.
type Answer struct {
	Known bool
	// Process is nil if it is not there.
	Process *v1beta2.InstanceProcess
}

// Ask asks an instance manager for the process of an object that wants none any more, if it was
// ordered and is not listed: the list may be old.
func Ask(ctx context.Context, from Processes, im *v1beta2.InstanceManager, name string,
	status *v1beta2.InstanceStatus) Answer {
	if im == nil || !status.Starting || Find(im, name) != nil ||
		im.Status.CurrentState != v1beta2.InstanceManagerStateRunning {
		return Answer{}
	}
	p, err := from.Get(ctx, im, name)
	if err != nil {
		slog.Info("an instance manager does not say whether it has a process", "process", name,
			"instanceManager", im.Name, "err", err)
	}
	return Answer{Known: err == nil, Process: p}
}

// In is the process of that name in an instance manager: by its answer, else by its list.
func (a Answer) In(im *v1beta2.InstanceManager, name string) *v1beta2.InstanceProcess {
	if a.Known {
		return a.Process
	}
	return Find(im, name)
}
