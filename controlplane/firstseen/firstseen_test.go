package firstseen_test

import (
	"testing"
	"time"

	"ankole.storage/controlplane/firstseen"
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
