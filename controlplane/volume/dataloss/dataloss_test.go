package dataloss

import (
	"slices"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestInForce: a decision counts for the record that it was made for, and for no other.
func TestInForce(t *testing.T) {
	d := Decision{Members: []string{"v-a"}, RecordEpoch: 3, Generation: 7}
	for _, tt := range []struct {
		name string
		text string
		edit func(m *v1beta2.Membership)
		want []string
		bad  bool
	}{
		{"for this record", d.Text(), func(*v1beta2.Membership) {}, []string{"v-a"}, false},
		{"engines that were granted an epoch and have not served change nothing", d.Text(),
			func(m *v1beta2.Membership) { m.Epoch = 9 }, []string{"v-a"}, false},
		{"another set was agreed", d.Text(), func(m *v1beta2.Membership) { m.Generation = 8 }, nil, false},
		{"another engine has served", d.Text(), func(m *v1beta2.Membership) { m.RecordEpoch = 4 }, nil, false},
		{"the record of another volume is none", d.Text(), func(m *v1beta2.Membership) { m.VolumeUUID = "o" }, nil, false},
		{"nobody", `{"recordEpoch":3,"generation":7}`, func(*v1beta2.Membership) {}, nil, true},
		{"an empty name", `{"members":[""],"recordEpoch":3,"generation":7}`, func(*v1beta2.Membership) {}, nil, true},
		{"nonsense", "yes", func(*v1beta2.Membership) {}, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, e := &v1beta2.Volume{}, &v1beta2.Engine{}
			v.UID, v.Annotations = "uid", map[string]string{Annotation: tt.text}
			e.Status.Membership = &v1beta2.Membership{VolumeUUID: "uid", Epoch: 5, RecordEpoch: 3, Generation: 7,
				Members: []string{"v-a", "v-b"}}
			tt.edit(e.Status.Membership)
			if _, err := Of(v); (err != nil) != tt.bad {
				t.Errorf("read: %v", err)
			}
			if got := InForce(v, e); !slices.Equal(got, tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
	v := &v1beta2.Volume{}
	if d, err := Of(v); d != nil || err != nil || InForce(v, nil) != nil {
		t.Errorf("a volume without a decision: %v, %v", d, err)
	}
	v.Annotations = map[string]string{Annotation: Decision{Members: []string{"v-a"}}.Text()}
	if got := InForce(v, nil); !slices.Equal(got, []string{"v-a"}) {
		t.Errorf("without a record: %v", got)
	}
}
