package firstseen_test

import (
	"testing"
	"time"

	"ankole.storage/controlplane/object/firstseen"
)

func TestAt(t *testing.T) {
	s, begin := firstseen.New(), time.Now()
	for i, tt := range []struct {
		subject, stamp string
		want           int // minutes after the beginning, -1 for never
	}{
		{"a", "2026-01-01T00:00:00Z", 0},
		{"a", "2026-01-01T00:00:00Z", 0}, // whatever the stamp says
		{"b", "2030-01-01T00:00:00Z", 2},
		{"a", "2026-01-01T00:00:01Z", 3}, // another one
		{"a", "", -1},
		{"a", "2026-01-01T00:00:01Z", 5}, // it was gone meanwhile
		{"b", "2030-01-01T00:00:00Z", 2},
	} {
		want := begin.Add(time.Duration(tt.want) * time.Minute)
		if tt.want < 0 {
			want = time.Time{}
		}
		s.Keep(func(subject string) bool { return subject != "c" })
		if got := s.At(begin.Add(time.Duration(i)*time.Minute), tt.subject, tt.stamp); !got.Equal(want) {
			t.Errorf("%d: %s of %s was seen at %s, want %s", i, tt.stamp, tt.subject, got, want)
		}
	}
}

// TestLeftByOneClock: a clock that is an hour away, in either direction, makes no wait shorter than
// what this process has to see of it, and a short one no longer either.
func TestLeftByOneClock(t *testing.T) {
	const short, long = 2 * time.Minute, 24 * time.Hour
	now := time.Now()
	for _, tt := range []struct {
		name               string
		wait, stamped, ago time.Duration // stamped and seen so long ago
		want               time.Duration
	}{
		{"short, seen now", short, 0, 0, short},
		{"short, by a clock behind", short, time.Hour, 0, short},
		{"short, by a clock ahead", short, -time.Hour, 0, short},
		{"short, over", short, time.Hour, short, 0},
		{"short, over by a clock ahead", short, -time.Hour, short, 0},
		{"long, one clock", long, 3 * time.Hour, 3 * time.Hour, 21 * time.Hour},
		{"long, by another leader", long, 23 * time.Hour, 0, time.Hour},
		{"long, over for another leader", long, 25 * time.Hour, 0, firstseen.Least},
		{"long, by a clock ahead", long, 22 * time.Hour, 23 * time.Hour, 2 * time.Hour},
		{"long, by a clock behind", long, 24 * time.Hour, 23 * time.Hour, 0},
	} {
		if got := firstseen.Left(now, now.Add(-tt.stamped), now.Add(-tt.ago), tt.wait); got != tt.want {
			t.Errorf("%s: %s left, want %s", tt.name, got, tt.want)
		}
	}
}

// TestEach: each part has a time of its own, and what is not named any more is forgotten.
func TestEach(t *testing.T) {
	s, begin := firstseen.New(), time.Now()
	for i, tt := range []struct {
		subject string
		stamps  map[string]string
		want    map[string]int // minutes after the beginning
	}{
		{"v", map[string]string{"a": "1", "b": ""}, map[string]int{"a": 0}},
		{"v", map[string]string{"a": "1", "b": "1"}, map[string]int{"a": 0, "b": 1}},
		{"w", map[string]string{"a": "1"}, map[string]int{"a": 2}},
		{"v", map[string]string{"a": "2", "b": "1"}, map[string]int{"a": 3, "b": 1}},
		{"v", map[string]string{"a": "2"}, map[string]int{"a": 3}},
		{"v", map[string]string{"a": "2", "b": "1"}, map[string]int{"a": 3, "b": 5}},
		{"v", nil, nil},
		{"v", map[string]string{"a": "2"}, map[string]int{"a": 7}},
		{"w", map[string]string{"a": "1"}, map[string]int{"a": 2}},
	} {
		got := s.Each(begin.Add(time.Duration(i)*time.Minute), tt.subject, tt.stamps)
		if len(got) != len(tt.want) {
			t.Errorf("%d: %v, want %v", i, got, tt.want)
		}
		for part, minutes := range tt.want {
			if want := begin.Add(time.Duration(minutes) * time.Minute); !got[part].Equal(want) {
				t.Errorf("%d: %s was seen at %s, want %s", i, part, got[part], want)
			}
		}
	}
}
