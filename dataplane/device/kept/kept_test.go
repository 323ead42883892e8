package kept_test

import (
	"strings"
	"testing"

	"ankole.storage/dataplane/device/kept"
)

// TestWhoContinuesAKeptDevice is the table of docs/design/frontends.md.
func TestWhoContinuesAKeptDevice(t *testing.T) {
	of := func(epochs ...uint64) kept.Owners {
		return kept.Owners{VolumeUUID: "u", Epochs: epochs}
	}
	for name, c := range map[string]struct {
		owners  kept.Owners
		uuid    string
		follows uint64
		says    string // "" where the device goes on
	}{
		"the engine that was killed was the last": {of(3000), "u", 3000, ""},
		"its successor of a live upgrade was":     {of(3000, 3001), "u", 3001, ""},
		"the successor came to nothing":           {of(3000, 3001), "u", 3000, ""},
		"an engine was killed before it had it":   {of(3000, 4000), "u", 4000, ""},
		"and nobody has heard of that one":        {of(3000, 4000), "u", 3000, ""},
		"another engine has served": {of(3000), "u", 4000,
			"under epoch 3, and another engine has served the volume since, under epoch 4"},
		"another one between two that had it":          {of(3000, 5000), "u", 4000, "another engine"},
		"a takeover elsewhere in the instance manager": {of(3000), "u", 3001, "under epoch 3.1"},
		"the witness or a person went back":            {of(3000), "u", 2000, "another engine"},
		"whom the engine follows is not known":         {of(3000), "u", 0, "does not know"},
		"not known, and a list that holds nobody":      {of(0), "u", 0, "does not know"},
		"another volume of the name":                   {of(3000), "v", 3000, "another volume"},
		"kept by an older program":                     {kept.Owners{}, "u", 3000, "did not say"},
		"this volume's name is not known either":       {kept.Owners{Epochs: []uint64{3000}}, "", 3000, "did not say"},
	} {
		err := c.owners.ContinuedBy(c.uuid, c.follows)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// TestManyEnginesBeforeARecord: engines that follow the same one, each noting its epoch before its
// first record is written anywhere, come to nothing one after the other. The last record is still
// that of the first engine, and the device goes on whatever their number.
func TestManyEnginesBeforeARecord(t *testing.T) {
	const served = 1000
	o := kept.Owners{VolumeUUID: "u"}
	o.Add(500)
	o.Add(served, 500)
	for i := range uint64(3 * kept.MaxEpochs) {
		if err := o.ContinuedBy("u", served); err != nil {
			t.Fatalf("the device ends after %d engines that have answered nothing: %v", i, err)
		}
		o.Add(2000+1000*i, served)
		if len(o.Epochs) > kept.MaxEpochs {
			t.Fatalf("%d epochs are kept", len(o.Epochs))
		}
	}
	newest := o.Epochs[len(o.Epochs)-1]
	if err := o.ContinuedBy("u", newest); err != nil {
		t.Errorf("the newest one: %v", err)
	}
	full := kept.Owners{VolumeUUID: "u", Epochs: o.Epochs}
	full.Add(1, o.Epochs...)
	if len(full.Epochs) != kept.MaxEpochs || full.Epochs[kept.MaxEpochs-1] != 1 {
		t.Errorf("where all are followed the oldest goes: %v", full.Epochs)
	}
}
