package daemon

import (
	"encoding/json"
	"reflect"
	"testing"

	"ankole.storage/dataplane/frontend/fuseloop/blockdev"
	"ankole.storage/dataplane/kept"
)

// TestKeptStateIsBounded, and arrives as it was sent.
func TestKeptStateIsBounded(t *testing.T) {
	k := keptState{Kept: blockdev.Kept{Loop: 3}, Owners: kept.Owners{VolumeUUID: "u"}}
	for e := range uint64(2 * kept.MaxEpochs) {
		k.Add(e + 1)
	}
	if n := len(k.Epochs); n != kept.MaxEpochs || k.Epochs[n-1] != 2*kept.MaxEpochs {
		t.Errorf("epochs %v", k.Epochs)
	}
	var got keptState
	if err := json.Unmarshal(k.encode(), &got); err != nil || !reflect.DeepEqual(got, k) {
		t.Errorf("%+v arrives as %+v: %v", k, got, err)
	}
}
