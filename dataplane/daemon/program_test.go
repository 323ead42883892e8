package daemon

import (
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// TestCleanMappings: only what is in the file and nowhere else qualifies.
func TestCleanMappings(t *testing.T) {
	const smaps = `00400000-00a23000 r-xp 00000000 fe:00 4711     /opt/engine
Size:               6284 kB
Rss:                5964 kB
Anonymous:             0 kB
00a23000-0112a000 r--p 00623000 fe:00 4711     /opt/engine
Rss:                 128 kB
Anonymous:             0 kB
0112a000-0112b000 r--p 00d2a000 fe:00 4711     /opt/engine
Rss:                   4 kB
Anonymous:             4 kB
0112b000-0119b000 rw-p 00d2b000 fe:00 4711     /opt/engine
Rss:                   0 kB
Anonymous:             0 kB
0119b000-031e0000 r--p 00000000 00:00 0 
Anonymous:             0 kB
7f0a00000000-7f0a00001000 r--p 00000000 fe:00 4712     /else/opt/engine
Anonymous:             0 kB
7f0a00001000-7f0a00002000 r--s 00000000 fe:00 4711     /opt/engine
Anonymous:             0 kB
7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0        [vdso]
Anonymous:             0 kB
`
	got, err := cleanMappings(strings.NewReader(smaps), "/opt/engine")
	if err != nil {
		t.Fatal(err)
	}
	want := []mapping{{0x400000, 0xa23000, 5964 << 10}, {0xa23000, 0x112a000, 128 << 10}}
	if !slices.Equal(got, want) {
		t.Fatalf("%x, want %x", got, want)
	}
}

// TestProgramIsUnmapped: all of the program is read, then it is unmapped, and is there as before.
func TestProgramIsUnmapped(t *testing.T) {
	before := programSum(t)
	mapped := programResident(t)
	if mapped <= idleProgram {
		t.Fatalf("the whole program is %d bytes: too little to be unmapped", mapped)
	}
	if err := unmapProgram(); err != nil {
		t.Fatal(err)
	}
	if left := programResident(t); left > mapped/2 {
		t.Errorf("%d of %d bytes are still mapped", left, mapped)
	}
	if after := programSum(t); after != before {
		t.Errorf("the program's bytes add up to %d, not %d", after, before)
	}
}

func ownMappings(t *testing.T) []mapping {
	t.Helper()
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := cleanMappings(f, exe)
	if err != nil || len(m) == 0 {
		t.Fatal(m, err)
	}
	return m
}

func programResident(t *testing.T) (bytes int) {
	t.Helper()
	for _, m := range ownMappings(t) {
		bytes += m.resident
	}
	return bytes
}

// programSum reads every page of the program's code and constants.
func programSum(t *testing.T) (sum uint64) {
	t.Helper()
	for _, m := range ownMappings(t) {
		at := m.start
		mem := unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), m.end-m.start)
		for i := 0; i < len(mem); i += 64 {
			sum += uint64(mem[i])
		}
	}
	return sum
}
