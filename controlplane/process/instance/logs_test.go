package instance

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
)

// logs answers each request with the next error.
type logs struct {
	asked []string
	err   error
}

func (l *logs) CopyLog(_ context.Context, im *v1beta2.InstanceManager, name string) error {
	l.asked = append(l.asked, im.Name+"/"+name)
	return l.err
}

func answering() *v1beta2.InstanceManager {
	return &v1beta2.InstanceManager{ObjectMeta: metav1.ObjectMeta{Name: "im"}, Status: v1beta2.InstanceManagerStatus{
		CurrentState: v1beta2.InstanceManagerStateRunning, IP: "10.0.0.1"}}
}

// TestWantsLog is the table of status.logFetched, and of when a log is read.
func TestWantsLog(t *testing.T) {
	starting := answering()
	starting.Status.CurrentState = v1beta2.InstanceManagerStateStarting
	for _, tt := range []struct {
		name               string
		requested, fetched bool
		im                 *v1beta2.InstanceManager
		answer             LogAnswer
		wants, shows       bool
	}{
		{name: "nobody asks", im: answering()},
		{name: "asked for", requested: true, im: answering(), wants: true},
		{name: "read", requested: true, im: answering(), answer: LogAnswer{Tried: true, Read: true}, shows: true},
		{name: "could not be read", requested: true, im: answering(), answer: LogAnswer{Tried: true}},
		{name: "read under an earlier leader", requested: true, fetched: true, im: answering(), shows: true},
		{name: "no instance manager", requested: true},
		{name: "it does not run yet", requested: true, im: starting},
		{name: "taken back", fetched: true, im: answering(), answer: LogAnswer{Tried: true, Read: true}},
	} {
		spec := &v1beta2.InstanceSpec{LogRequested: tt.requested}
		status := &v1beta2.InstanceStatus{LogFetched: tt.fetched}
		if got := WantsLog(spec, status, tt.im, tt.answer); got != tt.wants || status.LogFetched != tt.shows {
			t.Errorf("%s: to be read %v, fetched %v; want %v, %v", tt.name, got, status.LogFetched, tt.wants, tt.shows)
		}
	}
}

// TestLogsAreReadOnce: one attempt for each request, whatever comes of it; a new object, and a new
// request, is another one.
func TestLogsAreReadOnce(t *testing.T) {
	reader := &logs{err: errors.New("away")}
	l := NewLogs(reader)
	if a := l.Answer("r", "1", true); a.Tried {
		t.Fatalf("before anything is asked: %+v", a)
	}
	if err := l.Fetch(t.Context(), answering(), "r", "1"); err != nil {
		t.Fatal(err)
	}
	if a := l.Answer("r", "1", true); !a.Tried || a.Read || len(reader.asked) != 1 || reader.asked[0] != "im/r" {
		t.Errorf("after a failure %+v, asked %v", a, reader.asked)
	}
	l.Answer("r", "1", false)
	reader.err = nil
	if a := l.Answer("r", "1", true); a.Tried {
		t.Errorf("asked for again: %+v", a)
	}
	if err := l.Fetch(t.Context(), answering(), "r", "1"); err != nil {
		t.Fatal(err)
	}
	if a := l.Answer("r", "1", true); !a.Read {
		t.Errorf("when it was read: %+v", a)
	}
	if a := l.Answer("r", "2", true); a.Tried {
		t.Errorf("of another object of the name: %+v", a)
	}
	_ = l.Fetch(t.Context(), answering(), "r", "2") // never fails
	l.Forget("r")
	if a := l.Answer("r", "2", true); a.Tried {
		t.Errorf("when its object is gone: %+v", a)
	}
	if a := NewLogs(nil).Answer("r", "1", true); !a.Tried || a.Read {
		t.Errorf("without a reader: %+v", a)
	}
}
