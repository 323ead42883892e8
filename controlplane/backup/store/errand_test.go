package store

import (
	"context"
	"errors"
	"testing"

	"ankole.storage/test/wait"
)

// TestErrands: one at a time for each object, which is woken at the end; failures of an order are
// counted, and what is forgotten stays so.
func TestErrands(t *testing.T) {
	e := NewErrands[int]()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- e.Start(ctx) }()
	woken := func() string { return (<-e.Wakeups()).Object.GetName() }
	hold := make(chan struct{})
	e.Begin("a", "one", func(context.Context) (int, error) { <-hold; return 1, nil })
	e.Begin("a", "two", func(context.Context) (int, error) { return 2, nil })
	if o := e.Of("a"); !o.Runs() || o.Is("one") || o.Order != "one" {
		t.Errorf("%+v", o)
	}
	close(hold)
	if name := woken(); name != "a" || !e.Of("a").Is("one") || e.Of("a").Result != 1 {
		t.Errorf("%s %+v", name, e.Of("a"))
	}
	fails := func(context.Context) (int, error) { return 0, errors.New("no") }
	for want := range 3 {
		e.Begin("a", "two", fails)
		woken()
		if o := e.Of("a"); o.Failures != want+1 || o.Err == nil {
			t.Errorf("%+v", o)
		}
	}
	e.Begin("a", "three", func(context.Context) (int, error) { return 3, nil })
	woken()
	if o := e.Of("a"); o.Failures != 0 || o.Result != 3 {
		t.Errorf("%+v", o)
	}
	e.Forget("a")
	if o := e.Of("a"); o.Order != "" || o.Runs() {
		t.Errorf("%+v", o)
	}
	e.Begin("b", "waits", func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
	cancel()
	select {
	case <-ended:
	case <-wait.Late():
		t.Error("errands do not end with their controller")
	}
	e.Begin("c", "late", func(context.Context) (int, error) { t.Error("begun after the end"); return 0, nil })
}
