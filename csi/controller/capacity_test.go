package controller

import (
	"maps"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"ankole.storage/csi/request"
	"ankole.storage/rest/resource"
)

// TestCapacity: three nodes in zones of their own, with 100, 200 and 300 GiB.
func TestCapacity(t *testing.T) {
	zone := func(n string) *spec.Topology {
		return &spec.Topology{Segments: map[string]string{request.LabelZone: n}}
	}
	for _, tc := range []struct {
		name       string
		parameters map[string]string
		at         *spec.Topology
		change     func(f *fake)
		total, one int64 // GiB
	}{
		{"three replicas", nil, nil, nil, 200, 100},
		{"two", map[string]string{"numberOfReplicas": "2"}, nil, nil, 300, 200},
		{"one", map[string]string{"numberOfReplicas": "1"}, nil, nil, 600, 300},
		{"as many as nodes and one", map[string]string{"numberOfReplicas": "4"}, nil, nil, 150, 0},
		{"wherever it is used", map[string]string{"numberOfReplicas": "1"}, zone("zone-1"), nil, 600, 300},
		{"zonal", map[string]string{"numberOfReplicas": "1", "volumeTopology": "zonal"}, zone("zone-2"), nil, 200, 200},
		{"of a node", map[string]string{"numberOfReplicas": "1", "storageCapacityMode": "node"},
			&spec.Topology{Segments: map[string]string{request.LabelHost: "node-1"}}, nil, 100, 100},
		{"tags", map[string]string{"numberOfReplicas": "1", "diskSelector": "ssd"}, nil, func(f *fake) {
			d := f.nodes[0].Disks["d"]
			d.Tags = []string{"ssd"}
			f.nodes[0].Disks["d"] = d
		}, 100, 100},
		{"a node that is cordoned", map[string]string{"numberOfReplicas": "1"}, nil, func(f *fake) {
			f.nodes[2].AllowScheduling = false
		}, 300, 200},
		{"a node that is away", map[string]string{"numberOfReplicas": "1"}, nil, func(f *fake) {
			f.nodes[2].Conditions = maps.Clone(f.nodes[2].Conditions)
			f.nodes[2].Conditions["Ready"] = resource.Condition{Status: "False"}
		}, 300, 200},
		{"over-provisioned", map[string]string{"numberOfReplicas": "1"}, nil, func(f *fake) {
			f.settings["storage-over-provisioning-percentage"] = "200"
		}, 1200, 600},
		{"replicas on one node", nil, nil, func(f *fake) {
			f.settings["replica-soft-anti-affinity"] = "true"
			f.nodes[2].Disks["e"] = f.nodes[2].Disks["d"]
		}, 300, 200},
		{"promised", map[string]string{"numberOfReplicas": "1"}, nil, func(f *fake) {
			d := f.nodes[2].Disks["d"]
			d.StorageScheduled = 250 * gib
			f.nodes[2].Disks["d"] = d
		}, 350, 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFake()
			if tc.change != nil {
				tc.change(f)
			}
			got, err := newController(f).GetCapacity(background, &spec.GetCapacityRequest{Parameters: tc.parameters,
				AccessibleTopology: tc.at})
			if err != nil || got.AvailableCapacity != tc.total*gib || got.MaximumVolumeSize.GetValue() != tc.one*gib {
				t.Errorf("%v, %v; want %d and %d GiB", got, err, tc.total, tc.one)
			}
		})
	}
}

// TestCapacityOfEncryptedVolumes: the header of the largest volume has its room too.
func TestCapacityOfEncryptedVolumes(t *testing.T) {
	got, err := newController(newFake()).GetCapacity(background, &spec.GetCapacityRequest{
		Parameters: map[string]string{"numberOfReplicas": "1", request.ParamEncrypted: "true"}})
	if err != nil || got.AvailableCapacity != 600*gib || got.MaximumVolumeSize.GetValue() != 300*gib-16*mib {
		t.Errorf("%v, %v", got, err)
	}
}
