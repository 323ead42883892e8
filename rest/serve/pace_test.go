package serve

import (
	"fmt"
	"testing"
	"time"
)

func TestStreamPeriod(t *testing.T) {
	for text, want := range map[string]time.Duration{"1s": time.Second, "500ms": 500 * time.Millisecond, "-1s": 0,
		"1h": 15 * time.Second, "soon": 0, "": 0} {
		if got := streamPeriod(text); got != want {
			t.Errorf("streamPeriod(%q) = %s, want %s", text, got, want)
		}
	}
}

// TestNextMessage: a stream keeps its period, and rests four times as long as a message took.
func TestNextMessage(t *testing.T) {
	began := time.Date(2026, 5, 3, 9, 57, 48, 0, time.UTC)
	for _, tt := range []struct{ took, period, want time.Duration }{
		{0, 0, 0}, {0, time.Second, time.Second}, {time.Millisecond, 0, 5 * time.Millisecond},
		{100 * time.Millisecond, time.Second, time.Second}, {300 * time.Millisecond, time.Second, 1500 * time.Millisecond},
		{writeTimeout, maxStreamPeriod, 5 * writeTimeout},
	} {
		if got := nextMessage(began, began.Add(tt.took), tt.period).Sub(began); got != tt.want {
			t.Errorf("took %s, period %s: the next one after %s, want %s", tt.took, tt.period, got, tt.want)
		}
	}
}

// TestNewsIsBounded: what a stream has missed is a set of names, and from some number on the word
// that it has missed something.
func TestNewsIsBounded(t *testing.T) {
	n := newNews()
	for i := range maxNews {
		n.add(fmt.Sprint(i % 3))
		n.add(fmt.Sprint(i % 2))
	}
	if names, whole := n.take(); len(names) != 3 || whole {
		t.Errorf("%v, whole %t", names, whole)
	}
	for i := range 3 * maxNews {
		n.add(fmt.Sprint(i))
		if len(n.names) > maxNews {
			t.Fatalf("%d names", len(n.names))
		}
	}
	if names, whole := n.take(); len(names) != 0 || !whole {
		t.Errorf("%v, whole %t", names, whole)
	}
	if names, whole := n.take(); len(names) != 0 || whole {
		t.Errorf("taken twice: %v, whole %t", names, whole)
	}
	if n.add(""); !n.whole || len(n.told) != 1 {
		t.Error("news without a name is not news of everything")
	}
}
