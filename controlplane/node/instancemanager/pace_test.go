package instancemanager

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/rpc/imrpc"
)

// paced is a stream in a bubble of synctest, with what its controller was told.
type paced struct {
	*streams
	t     *testing.T
	ctx   context.Context
	key   client.ObjectKey
	st    *stream
	began time.Time
}

// newPaced has so many running replicas.
func newPaced(t *testing.T, replicas int) *paced {
	p := &paced{streams: newStreams(nil), t: t, ctx: t.Context(), key: client.ObjectKey{Name: "im"}, st: &stream{},
		began: time.Now()}
	p.st.lost = p.began
	list := map[string]*imrpc.ProcessResponse{}
	for i := range replicas {
		name := fmt.Sprintf("v%d-r-12345678", i)
		list[name] = process(name, "running")
	}
	p.publish(p.ctx, p.key, p.st, listed(list, &imrpc.VersionResponse{}))
	<-p.wakeups
	return p
}

// pass lets simulated time pass.
func (p *paced) pass(d time.Duration) {
	select {
	case <-time.After(d):
	case <-p.ctx.Done():
	}
}

func (p *paced) change(name, state string, after time.Duration) {
	p.pass(after)
	p.publish(p.ctx, p.key, p.st, changed(p.st.known, process(name, state)))
}

// woken waits for the next time the controller is woken, and returns how long that took and the
// state of a process that it is shown then.
func (p *paced) woken(name string) (after time.Duration, state v1beta2.InstanceState) {
	p.t.Helper()
	began := time.Now()
	select {
	case <-p.wakeups:
	case <-time.After(time.Hour):
		p.t.Fatal("the controller is not woken")
	}
	p.st.mu.Lock()
	defer p.st.mu.Unlock()
	shown := p.st.shown.Replicas[name].Status.State
	if isEngineName(name) {
		shown = p.st.shown.Engines[name].Status.State
	}
	return time.Since(began), shown
}

// TestPace: a process that starts is told of when it runs, one that ends at once; and a long list
// is not told anew for each process that begins.
func TestPace(t *testing.T) {
	const one, two = "a-r-11111111", "b-r-22222222"
	for name, play := range map[string]func(t *testing.T){
		"a start that is soon over": func(t *testing.T) {
			p := newPaced(t, 3)
			p.pass(time.Minute)
			p.change(one, "starting", 0)
			p.change(one, "running", 50*time.Millisecond)
			if after, state := p.woken(one); after != 0 || state != v1beta2.InstanceStateRunning {
				t.Errorf("after %s: %s", after, state)
			}
			p.pass(time.Minute)
			if len(p.wakeups) != 0 {
				t.Error("the start is told of once more")
			}
		},
		"a start that takes its time": func(t *testing.T) {
			p := newPaced(t, 3)
			p.pass(time.Minute)
			p.change(one, "starting", 0)
			p.change(two, "starting", startPause/2) // puts nothing off
			if after, state := p.woken(one); after != startPause/2 || state != v1beta2.InstanceStateStarting {
				t.Errorf("after %s: %s", after, state)
			}
		},
		"a process that fails in its start": func(t *testing.T) {
			p := newPaced(t, 1000)
			p.change(one, "starting", 0)
			p.change(one, "error", 0)
			if after, state := p.woken(one); after != 0 || state != v1beta2.InstanceStateError {
				t.Errorf("after %s: %s", after, state)
			}
		},
		"one of many ends": func(t *testing.T) {
			p := newPaced(t, 1000)
			p.change(one, "running", 0)
			gone := process("v7-r-12345678", "stopped")
			gone.Deleted = true
			p.publish(p.ctx, p.key, p.st, changed(p.st.known, gone))
			if after, state := p.woken("v7-r-12345678"); after != 0 || state != "" {
				t.Errorf("after %s: %q", after, state)
			}
		},
		"another run of an engine": func(t *testing.T) {
			p := newPaced(t, 1000)
			p.change("a-e-0", "running", time.Hour)
			p.woken("a-e-0")
			next := process("a-e-0", "running")
			next.Status.Uuid = "other"
			p.publish(p.ctx, p.key, p.st, changed(p.st.known, next))
			if after, _ := p.woken("a-e-0"); after != 0 {
				t.Errorf("after %s", after)
			}
		},
		"a volume that attaches beside many": func(t *testing.T) {
			p := newPaced(t, 1000)
			p.pass(time.Minute)
			for _, name := range []string{one, "a-e-0", two} {
				p.change(name, "running", 100*time.Millisecond)
				if after, _ := p.woken(name); after != 0 {
					t.Errorf("%s after %s", name, after)
				}
			}
		},
		"one begins after many have ended": func(t *testing.T) {
			p := newPaced(t, 400)
			for i := range 300 {
				gone := process(fmt.Sprintf("v%d-r-12345678", i), "stopped")
				gone.Deleted = true
				p.publish(p.ctx, p.key, p.st, changed(p.st.known, gone))
				<-p.wakeups
			}
			p.change(one, "running", 0)
			if after, _ := p.woken(one); after > 101*pausePerProcess {
				t.Errorf("after %s", after)
			}
		},
		"hundreds begin beside many": func(t *testing.T) {
			p := newPaced(t, 400)
			began, told := time.Now(), 0
			for i := range 500 {
				p.change(fmt.Sprintf("w%d-r-12345678", i), "running", 10*time.Millisecond)
				for ; len(p.wakeups) > 0; told++ {
					<-p.wakeups
				}
			}
			most := changesAhead + int(time.Since(began)/(400*pausePerProcess))
			if told == 0 || told > most {
				t.Errorf("told %d times within %s, more often than %d times", told, time.Since(began), most)
			}
			p.woken("w499-r-12345678")
			if n := len(p.st.shown.Replicas); n != 900 {
				t.Errorf("%d of 900 are shown in the end", n)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, play) })
	}
}

// TestTidings: what may wait is a process that begins, and nothing else.
func TestTidings(t *testing.T) {
	of := func(states ...string) map[string]v1beta2.InstanceProcess {
		p := listed(nil, &imrpc.VersionResponse{})
		for i, state := range states {
			if state != "" {
				p.put(process(fmt.Sprintf("v%d-r-12345678", i), state))
			}
		}
		return p.Replicas
	}
	for _, tt := range []struct {
		before, after []string
		want          tidings
	}{
		{[]string{"running"}, []string{"running"}, begun},
		{[]string{"running"}, []string{"running", "starting"}, begun},
		{[]string{"running"}, []string{"running", "running"}, up},
		{[]string{"starting"}, []string{"running"}, up},
		{[]string{"starting", "starting"}, []string{"running", "starting"}, up},
		{[]string{"running"}, []string{""}, other},
		{[]string{"running"}, []string{"stopping"}, other},
		{[]string{"running"}, []string{"starting"}, other},
		{[]string{"running"}, []string{"error", "running"}, other},
		{[]string{"running"}, []string{"", "running"}, other},
		{[]string{"stopped"}, []string{"running"}, other},
		{[]string{}, []string{"error"}, other},
	} {
		if got := news(of(tt.before...), of(tt.after...)); got != tt.want {
			t.Errorf("%q, then %q: %d, want %d", tt.before, tt.after, got, tt.want)
		}
	}
}
