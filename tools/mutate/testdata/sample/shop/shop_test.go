package shop

import (
	"errors"
	"testing"
)

func TestPrice(t *testing.T) {
	for n, want := range map[int]int{1: 10, 2: 20, 9: 90, 11: 99, 20: 180} {
		if got, err := Price(n); err != nil || got != want {
			t.Errorf("%d cost %d, %v; want %d", n, got, err, want)
		}
	}
	for _, n := range []int{0, -1} {
		if _, err := Price(n); !errors.Is(err, ErrNone) {
			t.Errorf("%d cost something: %v", n, err)
		}
	}
}

func TestLabel(t *testing.T) {
	if got := Label("a", "b"); got != (Order{"a", "b", true}) {
		t.Error(got)
	}
	if got := Label("a", "a"); got.Gift {
		t.Error(got)
	}
	if got := Label("", "b"); got.Gift {
		t.Error(got)
	}
}

func TestKind(t *testing.T) {
	for s, want := range map[string]int{"apple": 1, "pear": 1, "nut": 2} {
		if got := Kind(s); got != want {
			t.Errorf("%s is %d", s, got)
		}
	}
}

func TestCount(t *testing.T) {
	if got := Count(3); got != 3 {
		t.Error(got)
	}
}

func TestLongest(t *testing.T) {
	if got := Longest(nil, nil); got != 1 {
		t.Error(got)
	}
	if got := Longest([]string{"a", "b"}, []string{"a"}); got != 2 {
		t.Error(got)
	}
	if got := Longest(nil, []string{"a", "b", "c"}); got != 3 {
		t.Error(got)
	}
}
