package backingimage

import (
	"path"
	"strings"
	"testing"
	"time"
)

// ofTheReference is a record as its text is described: all keys, the time as Go prints it.
const ofTheReference = `{"name":"/data/backing-images/cirros-0a1b2c3d/backing","uuid":"0a1b2c3d","size":16338944,` +
	`"virtualSize":46137344,"realSize":16338944,"expectedChecksum":"","currentChecksum":"SUM",` +
	`"modificationTime":"2025-03-04 05:06:07.080900001 +0000 UTC"}`

func TestRecordOfTheReference(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("0f", 64)
	r, err := ParseRecord([]byte(strings.Replace(ofTheReference, "SUM", sum, 1)))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2025, 3, 4, 7, 6, 7, 80900001, time.FixedZone("elsewhere", 7200))
	if !r.Describes(16338944, at) {
		t.Errorf("%+v is not of a file of its size and time", r)
	}
	if r.Describes(16338945, at) || r.Describes(16338944, at.Add(1)) {
		t.Error("a record is of a file of another size or time")
	}
	if want := strings.Replace(ofTheReference, "SUM", sum, 1); string(r.Encode()) != want {
		t.Errorf("written as %s, want %s", r.Encode(), want)
	}
	r.CurrentChecksum = ""
	if r.Describes(16338944, at) {
		t.Error("a record without a checksum saves computing it")
	}
}

func TestRecordsThatSayNothing(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "{", "[]", `{"size":-1}`, `{"currentChecksum":"abc"}`, `{"size":"12"}`,
		`{"expectedChecksum":"` + strings.Repeat("0F", 64) + `"}`} {
		if r, err := ParseRecord([]byte(text)); err == nil {
			t.Errorf("%s is read as %+v", text, r)
		}
	}
}

func TestIDs(t *testing.T) {
	t.Parallel()
	id := ID{"a-name.of_it", "0a1b2c3d"}
	if got, err := ParseID(id.String()); err != nil || got != id {
		t.Errorf("%v, %v", got, err)
	}
	for _, dir := range []string{"", "name", "-0a1b2c3d", "..-0a1b2c3d", "a/b-0a1b2c3d", "name-", "name-0a1b",
		"name-0a1b2c3/"} {
		if got, err := ParseID(dir); err == nil {
			t.Errorf("%q is %v", dir, got)
		}
	}
	for _, bad := range []ID{{}, {"a", ""}, {"", "b"}, {"../a", "b"}, {"a", "../b"}, {".a", "b"}, {strings.Repeat("a",
		129), "b"}} {
		if bad.Check() == nil {
			t.Errorf("%+v passes", bad)
		}
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	id := ID{"cirros", "0a1b2c3d"}
	if p := InManager("/data", id); p != (Paths{"/data/backing-images/cirros-0a1b2c3d",
		"/data/backing-images/cirros-0a1b2c3d/backing", "/data/backing-images/cirros-0a1b2c3d/backing.cfg",
		"/data/backing-images/cirros-0a1b2c3d/backing.tmp"}) {
		t.Error(p)
	}
	if p := InSource("/data", id); p != (Paths{"/data/tmp", "/data/tmp/cirros-0a1b2c3d", "/data/tmp/cirros-0a1b2c3d.cfg",
		"/data/tmp/cirros-0a1b2c3d.tmp"}) {
		t.Error(p)
	}
}

// FuzzRecord: no text of a record and no name of a directory makes a path that leads elsewhere.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(strings.Replace(ofTheReference, "SUM", strings.Repeat("0f", 64), 1)), "cirros-0a1b2c3d")
	f.Add([]byte(`{"size":1e3}`), "..-0a1b2c3d")
	f.Fuzz(func(t *testing.T, text []byte, dir string) {
		if r, err := ParseRecord(text); err == nil {
			if again, err := ParseRecord(r.Encode()); err != nil || again != r {
				t.Errorf("%+v is read again as %+v, %v", r, again, err)
			}
		}
		if id, err := ParseID(dir); err == nil {
			p := InManager("/data", id)
			if path.Dir(p.Dir) != "/data/"+Folder || path.Base(p.Dir) != dir {
				t.Errorf("%q leads to %s", dir, p.Dir)
			}
		}
	})
}
