package daemon

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	witnessv1 "ankole.storage/api/rpc/witness/v1"
	"ankole.storage/dataplane/quorum"
)

const fuzzUUID = "6f2c9a56-93d3-4b7c-9a5e-2d1f0c6b7a88"

// Whatever a witness sends is a record of this volume with numbers that can be counted on from,
// nothing, or an error.
func FuzzWitnessMessage(f *testing.F) {
	for _, m := range []*witnessv1.Membership{
		{},
		{VolumeUuid: fuzzUUID, Epoch: 3, RecordEpoch: 2, Generation: 7, Members: []string{"a", "b"}, Engine: "e",
			InstanceManager: "im"},
		{VolumeUuid: fuzzUUID, Epoch: -1, RecordEpoch: -1, Generation: -1},
		{VolumeUuid: "other", Epoch: 3},
	} {
		p, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p)
	}
	w := &witness{caller: WitnessCaller{VolumeUUID: fuzzUUID}}
	f.Fuzz(func(t *testing.T, p []byte) {
		m := &witnessv1.Membership{}
		if proto.Unmarshal(p, m) != nil {
			return
		}
		r, err := w.record(m)
		if err != nil || m.VolumeUuid != fuzzUUID {
			if !reflect.DeepEqual(r, quorum.WitnessRecord{}) {
				t.Fatalf("%v gives %+v, %v", m, r, err)
			}
			return
		}
		for _, n := range []uint64{r.Epoch, r.Record.Epoch, r.Record.Generation} {
			if n+1 == 0 || int64(n) < 0 {
				t.Fatalf("%v gives %+v", m, r)
			}
		}
		if back, err := w.record(w.message(r)); r.Epoch != 0 && (err != nil || !reflect.DeepEqual(back, r)) {
			t.Fatalf("%+v becomes %+v, %v", r, back, err)
		}
	})
}
