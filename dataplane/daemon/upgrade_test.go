package daemon

import (
	"context"
	"errors"
	"os"
	"reflect"
	"runtime"
	"testing"
	"time"

	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/handover"
)

// TestSocketAfterAHandOver: an engine takes the socket for hand-overs away at its end, but not when
// another one has taken the volume over: that one's may be there by then, or the moment after.
func TestSocketAfterAHandOver(t *testing.T) {
	for _, over := range []bool{false, true} {
		s, _ := slowEngine(t)
		s.p.cfg.Handover, s.p.cfg.Instance = t.TempDir(), "e"
		path := handover.Socket(s.p.cfg.Handover, s.p.cfg.Instance)
		stop := s.p.listen()
		if _, err := os.Lstat(path); err != nil {
			t.Fatal(err)
		}
		s.p.handedOver = over
		stop()
		if _, err := os.Lstat(path); (err == nil) != over {
			t.Errorf("handed over %v: the socket: %v", over, err)
		}
		if _, err := handover.Dial(path); err == nil {
			t.Error("it is listened at still")
		}
	}
}

// TestTakenBackWhileOffered: an engine that prepares to serve gives up at once when the one that
// has offered the volume takes it back, and goes on when that one has died.
func TestTakenBackWhileOffered(t *testing.T) {
	path := handover.Socket(t.TempDir(), "e")
	l, err := handover.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, refuses := range []bool{true, false} {
		c, err := handover.Dial(path)
		if err != nil {
			t.Fatal(err)
		}
		old, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		offered, over := whileOffered(t.Context(), c)
		if refuses {
			back := handover.Message{Refused: &handover.Refused{Reason: "back"}}
			if err := old.Send(back, time.Now().Add(sendWait)); err != nil {
				t.Fatal(err)
			}
			<-offered.Done()
			if err := context.Cause(offered); !errors.Is(err, errTakenBack) {
				t.Errorf("ended by %v", err)
			}
			if m, err := c.Receive(time.Now().Add(sendWait)); err != nil || m.Refused == nil {
				t.Errorf("the word itself: %+v, %v", m, err)
			}
		}
		old.Close()
		if !refuses {
			for !c.Gone() {
				runtime.Gosched()
			}
			select {
			case <-offered.Done():
				t.Errorf("the end of the engine that has offered: %v", context.Cause(offered))
			case <-time.After(3 * refusalLook):
			}
		}
		over()
		c.Close()
	}
}

// Every option and every counter passes to the next engine, those too that are added one day.
func TestOfferCarriesEverything(t *testing.T) {
	left := engine.Left{Epoch: 7, Size: 1 << 30, RebuildBudget: 5, Purge: true}
	for _, v := range []reflect.Value{reflect.ValueOf(&left.Options).Elem(), reflect.ValueOf(&left.Counters).Elem()} {
		for i := range v.NumField() {
			switch f := v.Field(i); f.Kind() {
			case reflect.Bool:
				f.SetBool(true)
			case reflect.Int, reflect.Int64:
				f.SetInt(int64(i) + 1)
			case reflect.Uint64:
				f.SetUint(uint64(i) + 1)
			default:
				t.Fatalf("%s is a %s", v.Type().Field(i).Name, f.Kind())
			}
		}
	}
	if got := leftOf(offer(&left, "")); !reflect.DeepEqual(got, left) {
		t.Errorf("what arrives is\n%+v, want\n%+v", got, left)
	}
}
