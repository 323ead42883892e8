package logwriter

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// gate is an output that takes what it is given when it is open.
type gate struct {
	open chan struct{}
	bytes.Buffer
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.open
	return g.Buffer.Write(p)
}

// TestLinesArriveInOrder, all of them as long as they are read.
func TestLinesArriveInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		close(g.open)
		w := New(g)
		var want strings.Builder
		for i := range 3 * maxLines {
			line := fmt.Sprintln("line", i)
			want.WriteString(line)
			if n, err := w.Write([]byte(line)); n != len(line) || err != nil {
				t.Fatal(n, err)
			}
			if i%maxLines == maxLines/2 {
				synctest.Wait()
			}
		}
		w.Close()
		if got := g.String(); got != want.String() {
			t.Errorf("%d bytes arrive of %d", len(got), want.Len())
		}
	})
}

// TestNobodyReads: writers never wait, what waits is bounded, and it is told how many lines are
// missing where they are missing.
func TestNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		w := New(g)
		_, _ = w.Write([]byte("first\n"))
		synctest.Wait() // it is on its way
		var work sync.WaitGroup
		for range 4 {
			work.Go(func() {
				for range maxLines {
					_, _ = w.Write([]byte("line\n"))
				}
			})
		}
		work.Wait()
		if len(w.queue) != maxLines {
			t.Errorf("%d lines wait", len(w.queue))
		}
		close(g.open)
		synctest.Wait()
		_, _ = w.Write([]byte("last\n"))
		w.Close()
		want := "first\n" + strings.Repeat("line\n", maxLines) +
			fmt.Sprintf("[%d lines are missing here: nobody read this output]\n", 3*maxLines) + "last\n"
		if got := g.String(); got != want {
			t.Errorf("%q", got[max(0, len(got)-200):])
		}
	})
}

// TestLongLines are bounded by their bytes; one of any length is taken while nothing else waits.
func TestLongLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		w := New(g)
		_, _ = w.Write([]byte("x"))
		synctest.Wait()
		for range 3 {
			_, _ = w.Write(make([]byte, maxBytes+1))
		}
		if len(w.queue) != 1 || w.dropped != 2 {
			t.Errorf("%d wait, %d are dropped", len(w.queue), w.dropped)
		}
		close(g.open)
		w.Close()
	})
}

// TestCloseIsBounded: a program whose output nobody reads ends, and what is written afterwards
// harms nobody.
func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		w := New(g)
		_, _ = w.Write([]byte("x"))
		began := time.Now()
		w.Close()
		if took := time.Since(began); took != CloseWait {
			t.Errorf("it takes %s", took)
		}
		_, _ = w.Write([]byte("y"))
		close(g.open)
	})
}

// TestMissingLinesAreMissingWhereItIsSaid: a line that would find room does not pass one that found
// none.
func TestMissingLinesAreMissingWhereItIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		w := New(g)
		_, _ = w.Write([]byte("first\n"))
		synctest.Wait() // it is on its way
		_, _ = w.Write([]byte("second\n"))
		_, _ = w.Write(make([]byte, maxBytes))
		_, _ = w.Write([]byte("third\n"))
		close(g.open)
		synctest.Wait()
		_, _ = w.Write([]byte("last\n"))
		w.Close()
		if got, want := g.String(),
			"first\nsecond\n[2 lines are missing here: nobody read this output]\nlast\n"; got != want {
			t.Errorf("%q", got)
		}
	})
}
