package schedule

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestPercentAtTheEdges(t *testing.T) {
	for _, x := range []int64{-5, 0, 1, 99, 100, 101, 1 << 40, 1 << 56, 1<<62 + 99, math.MaxInt64} {
		for _, p := range []int64{-1, 0, 1, 3, 99, 100, 101, 1 << 20, math.MaxInt64} {
			exact := new(big.Int).Div(new(big.Int).Mul(big.NewInt(max(x, 0)), big.NewInt(max(p, 0))), big.NewInt(100))
			got, most := big.NewInt(percent(x, p)), big.NewInt(math.MaxInt64)
			// Within twice the percentage of the largest integer the result may be the largest integer.
			near := exact.Cmp(new(big.Int).Sub(most, new(big.Int).Mul(big.NewInt(2), big.NewInt(p)))) > 0
			if got.Cmp(exact) != 0 && !(near && got.Cmp(most) == 0) {
				t.Errorf("%d %% of %d is %v, not %v", p, x, got, exact)
			}
		}
	}
	const largest = math.MaxInt64
	if got := percent((largest/300-2)*100, 300); got != (largest/300-2)*300 {
		t.Errorf("just below the end: %d", got)
	}
	if got := percent((largest/300-1)*100, 300); got != largest {
		t.Errorf("at the end: %d", got)
	}
}

func TestSumsDoNotOverflow(t *testing.T) {
	for _, c := range [][3]int64{{1, 2, 3}, {math.MaxInt64 - 1, 1, math.MaxInt64}, {math.MaxInt64, 1, math.MaxInt64},
		{5, math.MaxInt64, math.MaxInt64}} {
		if got := saturatingAdd(c[0], c[1]); got != c[2] {
			t.Errorf("%d + %d = %d", c[0], c[1], got)
		}
	}
}

func TestFilesAtTheLimitOfTheirFileSystem(t *testing.T) {
	for name, limit := range map[string]int64{"ext2/ext3": 16 << 40, "ext2": 16 << 40, "ext3": 16 << 40, "ext4": 16 << 40,
		"xfs": math.MaxInt64} {
		if !HoldsFile(name, limit-1) || HoldsFile(name, limit) {
			t.Errorf("%s does not end at %d", name, limit)
		}
	}
	if !HoldsFile("btrfs", math.MaxInt64) {
		t.Error("an unknown file system has a limit")
	}
}

func TestUnderPressure(t *testing.T) {
	for _, tt := range []struct {
		disk      Disk
		threshold int64
		want      bool
	}{
		{Disk{Maximum: 100, Available: 20}, 80, false},
		{Disk{Maximum: 100, Available: 19}, 80, true},
		{Disk{Maximum: 1000, Available: 199}, 80, true},
		{Disk{Maximum: 100, Available: 30, Reserved: 11}, 80, true},
		{Disk{Maximum: 100, Available: 10, Reserved: 50}, 100, false},
		{Disk{Maximum: 100, Available: 10, Reserved: 9}, 100, false},
		{Disk{Maximum: 1000, Available: 1}, 100, false},
		{Disk{Maximum: 1000, Available: 9}, 99, true},
		{Disk{Maximum: 100, Available: 5, Reserved: 50}, 99, true},
		{Disk{Maximum: 100}, 0, false},
		{Disk{Maximum: 100}, -1, false},
		{Disk{Available: 10}, 80, false},
		{Disk{Maximum: -1, Available: 10}, 80, false},
	} {
		if got := tt.disk.UnderPressure(tt.threshold); got != tt.want {
			t.Errorf("%+v at %d %%: %v", tt.disk, tt.threshold, got)
		}
	}
}

func TestSizesThatAreNone(t *testing.T) {
	d, p := Disk{Maximum: 100, Available: 100}, Policy{OverProvisioningPercent: 100}
	for _, tt := range []struct {
		size, actual int64
		want         bool
	}{{0, 0, true}, {-1, 0, false}, {0, -1, false}} {
		if d.Fits(tt.size, tt.actual, p) != tt.want {
			t.Errorf("Fits(%d, %d) is not %v", tt.size, tt.actual, tt.want)
		}
	}
	if d.Available = -5; d.Fits(0, 0, p) {
		t.Error("a disk with less than nothing available takes something")
	}
}

// TestTies places on disks that differ in nothing, or in one thing only.
func TestTies(t *testing.T) {
	place := func(p Policy, nodes ...Node) string {
		at, _ := Place(Request{Policy: p, Volume: Volume{Size: 10}, Nodes: nodes})
		return at.NodeID + " " + at.DiskID
	}
	on := func(name string, disks ...Disk) Node {
		n := node(1, "")
		n.Name, n.Disks = name, disks
		return n
	}
	with := func(name string, available, scheduled int64) Disk {
		d := disk(name)
		d.Maximum, d.Available, d.Scheduled = 1000, available, scheduled
		return d
	}
	p := policy()
	p.OverProvisioningPercent, p.MinimalAvailablePercent = 1000, 0
	for _, tt := range []struct {
		name  string
		nodes []Node
		want  string
	}{
		{"exactly enough room", []Node{on("b", with("x", 200, 190)), on("a", with("y", 100, 90))}, "a y"},
		{"no room, more available", []Node{on("a", with("x", 100, 500)), on("b", with("y", 101, 500))}, "b y"},
		{"no room, first node", []Node{on("b", with("x", 100, 500)), on("a", with("y", 100, 500))}, "a y"},
		{"no room, first disk", []Node{on("a", with("y", 100, 500), with("x", 100, 500))}, "a x"},
		{"too little room, more of it", []Node{on("a", with("x", 500, 499)), on("b", with("y", 100, 98))}, "b y"},
		{"room, first node, whose disk comes last", []Node{on("b", with("x", 100, 0)), on("a", with("y", 100, 0))}, "a y"},
		{"room, first disk", []Node{on("a", with("y", 100, 0), with("x", 100, 0))}, "a x"},
	} {
		if got := place(p, tt.nodes...); got != tt.want {
			t.Errorf("%s: placed on %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestRoom: what Room promises Fits takes, and one byte more it does not.
func TestRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		byteCount := rapid.Int64Range(0, 1<<50)
		d := Disk{Maximum: byteCount.Draw(t, "maximum"), Available: byteCount.Draw(t, "available"),
			Reserved: byteCount.Draw(t, "reserved"), Scheduled: byteCount.Draw(t, "scheduled")}
		p := Policy{OverProvisioningPercent: rapid.Int64Range(0, 500).Draw(t, "over"),
			MinimalAvailablePercent: rapid.Int64Range(0, 100).Draw(t, "minimal")}
		room := d.Room(p)
		if room > 0 && !d.Fits(room, 0, p) || room == 0 && d.Fits(1, 0, p) || room > 0 && d.Fits(room+1, 0, p) {
			t.Errorf("%+v, %+v: room for %d", d, p, room)
		}
	})
	if room := (Disk{Maximum: 1000, Available: 900, Scheduled: 999}).Room(Policy{OverProvisioningPercent: 100,
		MinimalAvailablePercent: 25}); room != 1 {
		t.Errorf("room for %d, want 1", room)
	}
	if room := (Disk{Maximum: 1000, Available: 900, Scheduled: 300}).Room(Policy{OverProvisioningPercent: 200,
		MinimalAvailablePercent: 25}); room != 1700 {
		t.Errorf("room for %d, want 1700", room)
	}
	// A replica that occupies nothing leaves what is available: one byte above the minimum is enough.
	if room := (Disk{Maximum: 1000, Available: 251}).Room(Policy{OverProvisioningPercent: 100,
		MinimalAvailablePercent: 25}); room != 1000 {
		t.Errorf("room for %d, want 1000", room)
	}
}
