package patience

import (
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"": 1, "5": 5, "0": 1, "-3": 1, "101": 1, "2.5": 1, "100": 100} {
		if got := parse(text); got != want {
			t.Errorf("%s=%q: %d times, want %d", Variable, text, got, want)
		}
	}
}
