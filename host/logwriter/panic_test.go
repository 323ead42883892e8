package logwriter

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

const panics = "ANKOLE_TEST_PANICS"

func TestMain(m *testing.M) {
	if os.Getenv(panics) != "" {
		runtime.GOMAXPROCS(1) // nobody else runs before the end
		w := Standard()
		for i := range maxLines {
			fmt.Fprintln(w, "line", i)
		}
		panic("the reason")
	}
	os.Exit(m.Run())
}

// TestLinesBeforeAPanic: a program that ends in a panic has no time to write its log. What it said
// before, which tells why, has reached the reader all the same, and so does the panic.
func TestLinesBeforeAPanic(t *testing.T) {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), panics+"=1")
	said, err := c.CombinedOutput()
	if err == nil {
		t.Error("it ended well")
	}
	for i := range maxLines {
		if !strings.Contains(string(said), fmt.Sprintf("line %d\n", i)) {
			t.Fatalf("line %d of %d is missing", i, maxLines)
		}
	}
	if !strings.Contains(string(said), "panic: the reason") {
		t.Errorf("the panic is missing: %.200q", said)
	}
}
