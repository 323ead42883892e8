package node

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestDevicesBelowAFileSystem: a partition is on its disk, a mapped device on the disks below it.
func TestDevicesBelowAFileSystem(t *testing.T) {
	sys := t.TempDir()
	dir := func(parts ...string) string {
		t.Helper()
		at := filepath.Join(append([]string{sys}, parts...)...)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		return at
	}
	link := func(to, at string) {
		t.Helper()
		if err := os.Symlink(to, at); err != nil {
			t.Fatal(err)
		}
	}
	for _, disk := range []string{"sda", "sdb"} {
		part := dir("devices", disk, disk+"1")
		if err := os.WriteFile(filepath.Join(part, "partition"), []byte("1\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		dir("devices", disk, "slaves")
		dir("devices", disk, disk+"1", "slaves")
	}
	slaves := dir("devices", "dm-0", "slaves")
	link(filepath.Join(sys, "devices/sda/sda1"), filepath.Join(slaves, "sda1"))
	link(filepath.Join(sys, "devices/sdb"), filepath.Join(slaves, "sdb"))
	turn := dir("devices", "dm-1", "slaves")
	link(filepath.Join(sys, "devices/dm-1"), filepath.Join(turn, "dm-1"))
	for _, tt := range []struct {
		device string
		want   []string
		fails  bool
	}{
		{"sda", []string{"sda"}, false},
		{"sda/sda1", []string{"sda"}, false},
		{"dm-0", []string{"sda", "sdb"}, false},
		{"dm-1", nil, true},
		{"sdx", nil, true},
	} {
		found := map[string]bool{}
		err := Host{}.walkDevices(filepath.Join(sys, "devices", tt.device), found, 0)
		if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, tt.want) || (err != nil) != tt.fails {
			t.Errorf("%s: %v, %v; want %v", tt.device, got, err, tt.want)
		}
	}
}

// TestSmartVerdict is the table from what smartctl prints to a health status.
func TestSmartVerdict(t *testing.T) {
	for text, want := range map[string]v1beta2.HealthStatus{
		``:                               "UNKNOWN",
		`no JSON`:                        "UNKNOWN",
		`{"smartctl":{"exit_status":2}}`: "UNKNOWN",
		`{"smartctl":{"exit_status":0},"smart_status":{"passed":true}}`:  "PASSED",
		`{"smartctl":{"exit_status":64},"smart_status":{"passed":true}}`: "PASSED",
		`{"smartctl":{"exit_status":16},"smart_status":{"passed":true}}`: "WARNING",
		`{"smartctl":{"exit_status":32},"smart_status":{"passed":true}}`: "WARNING",
		`{"smartctl":{"exit_status":8},"smart_status":{"passed":false}}`: "FAILED",
	} {
		if got := smartVerdict([]byte(text)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// TestHostWithoutTheProgram: a host without smartctl is told as what it is.
func TestHostWithoutTheProgram(t *testing.T) {
	root := t.TempDir()
	h := Host{Resolve: func(string) string { return root }}
	if got := smartVerdict(h.smart(t.Context(), "sda")); got != v1beta2.HealthStatusUnknown {
		t.Errorf("says %s", got)
	}
}

// TestHealthReachesTheDisk: what the devices say is in the disk's status while the setting is on.
func TestHealthReachesTheDisk(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	health := map[string]Health{"a": {at,
		map[string]v1beta2.DiskHealth{"sda": {HealthStatus: "WARNING", Source: "SMART"}}}, "b": {}}
	n := readyNode()
	s := agentSeen{Facts: map[string]DiskFacts{"a": facts("ua", "1"), "b": facts("ub", "2")}, Health: health}
	check := func(what string, want v1beta2.HealthStatus, dated bool) {
		t.Helper()
		decideAgent(now, n, s)
		a, b := n.Status.DiskStatus["a"], n.Status.DiskStatus["b"]
		if a.HealthData["sda"].HealthStatus != want || a.HealthDataLastCollectedAt.IsZero() == dated || b.HealthData != nil {
			t.Errorf("%s: %+v at %v; of the other disk %+v", what, a.HealthData, a.HealthDataLastCollectedAt, b.HealthData)
		}
	}
	check("an answer", "WARNING", true)
	s.Health = map[string]Health{"a": {}, "b": {}}
	check("no answer of this process yet", "WARNING", true)
	s.Health = nil
	check("the setting is off", "", false)
}

// TestDevicesAreAskedNowAndThen: at once if nobody has asked, then in an hour, of a failure too; a
// device that does not answer holds nobody up.
func TestDevicesAreAskedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, fails, hang, clock := 0, true, make(chan struct{}), time.Unix(1e9, 0)
		w := newHealthWatch(func(context.Context, string) (map[string]v1beta2.DiskHealth, error) {
			asked++
			if fails {
				return nil, errors.New("no")
			}
			<-hang
			return map[string]v1beta2.DiskHealth{"sda": {HealthStatus: "PASSED"}}, nil
		}, func() time.Time { return clock })
		if w.Of("n1", "/a", time.Time{}); asked != 0 {
			t.Error("asks before it is started")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Start(ctx) }()
		synctest.Wait()
		look := func(what string, want int, last time.Time) Health {
			t.Helper()
			got := w.Of("n1", "/a", last)
			if synctest.Wait(); asked != want {
				t.Errorf("%s: asked %d times, want %d", what, asked, want)
			}
			return got
		}
		look("asked by an earlier process", 0, clock.Add(-time.Minute))
		look("first", 1, time.Time{})
		look("again at once", 1, time.Time{})
		fails = false
		clock = clock.Add(healthEvery)
		if h := look("in an hour", 2, time.Time{}); !h.At.IsZero() {
			t.Errorf("it has not answered, and says %+v", h)
		}
		close(hang)
		if e := <-w.wakeups; e.Object.GetName() != "n1" {
			t.Errorf("wakes %s", e.Object.GetName())
		}
		if h := look("answered", 2, time.Time{}); h.Devices["sda"].HealthStatus != "PASSED" {
			t.Errorf("the answer is %+v", h)
		}
		w.Forget()
		if h := look("switched off and on", 3, time.Time{}); !h.At.IsZero() {
			t.Errorf("after it was switched off: %+v", h)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
