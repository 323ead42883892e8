package instance

import (
	"context"
	"log/slog"
	"sync"

	"ankole.storage/api/longhorn/v1beta2"
)

// LogReader reads what processes print.
type LogReader interface {
	// CopyLog writes the end of the log of the process of that name, which may have ended, to the log
	// of the caller's own process. One without a log is no error.
	CopyLog(ctx context.Context, im *v1beta2.InstanceManager, name string) error
}

// Logs has the logs read that the objects of one kind ask for (spec.logRequested): each request is
// tried once, so that an instance manager that does not answer holds nobody up. Use NewLogs.
type Logs struct {
	reader LogReader

	mu      sync.Mutex
	answers map[string]LogAnswer // by name of the object
}

// LogAnswer is what has become of an object's request for its log. The zero value: nobody has
// tried.
type LogAnswer struct {
	// UID is the object's.
	UID string
	// Tried: an instance manager was asked. Read: it has answered with the log.
	Tried, Read bool
}

// NewLogs returns one that has read nothing; without a reader it never reads anything.
func NewLogs(reader LogReader) *Logs {
	return &Logs{reader: reader, answers: map[string]LogAnswer{}}
}

// Answer is what has become of the request of the object with that name and UID. A request that was
// taken back is forgotten.
func (l *Logs) Answer(name, uid string, requested bool) LogAnswer {
	l.mu.Lock()
	defer l.mu.Unlock()
	answer := l.answers[name]
	if !requested || answer.UID != uid {
		delete(l.answers, name)
		answer = LogAnswer{UID: uid, Tried: l.reader == nil}
	}
	return answer
}

// Forget is told that there is no object of that name any more.
func (l *Logs) Forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.answers, name)
}

// Fetch reads the log of an object's process. It does not fail: a log that cannot be read must not
// hold up the end of the process.
func (l *Logs) Fetch(ctx context.Context, im *v1beta2.InstanceManager, name, uid string) error {
	err := l.reader.CopyLog(ctx, im, name)
	if err != nil {
		slog.Warn("cannot read the log of a process that has failed", "process", name, "instanceManager", im.Name, "err", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[name] = LogAnswer{UID: uid, Tried: true, Read: err == nil}
	return nil
}

// WantsLog brings status.logFetched up to date and says whether the log is to be read now, in the
// instance manager that has, or had, the process.
func WantsLog(spec *v1beta2.InstanceSpec, status *v1beta2.InstanceStatus, im *v1beta2.InstanceManager,
	answer LogAnswer) bool {
	status.LogFetched = spec.LogRequested && (status.LogFetched || answer.Read)
	return spec.LogRequested && !status.LogFetched && !answer.Tried && im != nil && im.Status.IP != "" &&
		im.Status.CurrentState == v1beta2.InstanceManagerStateRunning
}
