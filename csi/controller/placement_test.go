package controller

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ankole.storage/csi/csitest"
	"ankole.storage/csi/request"
	"ankole.storage/rest/resource"
)

func segment(zone, region, host string) *spec.Topology {
	return &spec.Topology{Segments: map[string]string{request.LabelZone: zone, request.LabelRegion: region,
		request.LabelHost: host}}
}

// TestTopology: where replicas may be, and where the volume is said to be usable.
func TestTopology(t *testing.T) {
	a, b := segment("a", "r", "n1"), segment("b", "r", "n2")
	used := &spec.TopologyRequirement{Requisite: []*spec.Topology{a, b}, Preferred: []*spec.Topology{b, a}}
	for _, tc := range []struct {
		name       string
		parameters map[string]string
		keys       string
		from       *spec.TopologyRequirement
		replicas   []resource.TopologyTerm
		usable     []map[string]string
		code       codes.Code
	}{
		{"anywhere", nil, "", used, nil, nil, codes.OK},
		{"keys allowed", nil, request.LabelZone, used, nil, []map[string]string{{request.LabelZone: "b"},
			{request.LabelZone: "a"}}, codes.OK},
		{"zonal", map[string]string{"volumeTopology": "zonal"}, request.LabelZone, used, []resource.TopologyTerm{{Zone: "b",
			Region: "r"}},
			[]map[string]string{{request.LabelZone: "b"}}, codes.OK},
		{"zonal, no keys", map[string]string{"volumeTopology": "zonal"}, "", used,
			[]resource.TopologyTerm{{Zone: "b", Region: "r"}}, nil, codes.OK},
		{"regional", map[string]string{"volumeTopology": "regional"}, request.LabelRegion + ", " + request.LabelZone, used,
			[]resource.TopologyTerm{{Region: "r"}}, []map[string]string{{request.LabelZone: "b", request.LabelRegion: "r"}},
			codes.OK},
		{"strict", map[string]string{"strictTopology": "true"}, request.LabelZone, used,
			[]resource.TopologyTerm{{Zone: "a", Region: "r"}, {Zone: "b", Region: "r"}},
			[]map[string]string{{request.LabelZone: "a"}, {request.LabelZone: "b"}}, codes.OK},
		{"zonal of nothing", map[string]string{"volumeTopology": "zonal"}, request.LabelZone, nil, nil, nil,
			codes.InvalidArgument},
		{"zonal of a node without a zone", map[string]string{"volumeTopology": "zonal"}, request.LabelZone,
			&spec.TopologyRequirement{Preferred: []*spec.Topology{segment("", "", "n1")}}, nil, nil, codes.InvalidArgument},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFake()
			f.settings[request.TopologySetting] = tc.keys
			r := createRequest("vol-1", gib)
			r.Parameters, r.AccessibilityRequirements = tc.parameters, tc.from
			resp, err := newController(f).CreateVolume(background, r)
			if status.Code(err) != tc.code {
				t.Fatal(err)
			}
			if err != nil {
				return
			}
			if got := f.volumes["vol-1"].TopologyRequirement; !reflect.DeepEqual(got, tc.replicas) {
				t.Errorf("replicas in %v", got)
			}
			var usable []map[string]string
			for _, s := range resp.Volume.AccessibleTopology {
				usable = append(usable, s.Segments)
			}
			if !reflect.DeepEqual(usable, tc.usable) {
				t.Errorf("usable in %v", usable)
			}
		})
	}
}

// TestTopologyChangesMeanwhile: nodes come and go while a volume is made, and change what its claim
// prefers and takes: a volume that has places is the claim's where the claim may be used there.
func TestTopologyChangesMeanwhile(t *testing.T) {
	a, b, c := segment("a", "r", "n1"), segment("b", "r", "n2"), segment("c", "r", "n3")
	for _, tc := range []struct {
		name        string
		parameters  map[string]string
		first, then []*spec.Topology // the one that is preferred first
		usable      string
		code        codes.Code
	}{
		{"zonal, another is preferred", map[string]string{request.ParamTopology: request.TopologyZonal},
			[]*spec.Topology{a, b},
			[]*spec.Topology{c, a, b}, "a", codes.OK},
		{"zonal, its zone is taken no more", map[string]string{request.ParamTopology: request.TopologyZonal},
			[]*spec.Topology{a, b},
			[]*spec.Topology{c, b}, "", codes.AlreadyExists},
		{"strict, a zone more", map[string]string{request.ParamStrict: "true"}, []*spec.Topology{a, b},
			[]*spec.Topology{a, b, c}, "a b", codes.OK},
		{"strict, a zone less", map[string]string{request.ParamStrict: "true"}, []*spec.Topology{a, b}, []*spec.Topology{b},
			"b",
			codes.OK},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.settings[request.TopologySetting], f.looks = request.LabelZone, 20
			driver := newController(f)
			driver.manager = &changed{fake: f, volume: func(v *resource.Volume) {
				v.Replicas = []resource.Replica{{Name: "r-1", HostID: "n1"}}
			}}
			r := createRequest("vol-1", gib)
			r.Parameters = tc.parameters
			r.AccessibilityRequirements = &spec.TopologyRequirement{Requisite: tc.first, Preferred: tc.first}
			ctx, cancel := context.WithTimeout(background, time.Second)
			defer cancel()
			_, err := driver.CreateVolume(ctx, r)
			csitest.Wants(t, err, codes.DeadlineExceeded)
			driver.patience = time.Minute
			r.AccessibilityRequirements = &spec.TopologyRequirement{Requisite: tc.then, Preferred: tc.then}
			resp, err := driver.CreateVolume(background, r)
			if status.Code(err) != tc.code || f.orders != 1 {
				t.Fatalf("%s: %v, %d orders", tc.name, err, f.orders)
			}
			var usable []string
			for _, s := range resp.GetVolume().GetAccessibleTopology() {
				usable = append(usable, s.Segments[request.LabelZone])
			}
			if want := strings.Fields(tc.usable); !slices.Equal(usable, want) {
				t.Errorf("%s: usable in %q, want %q", tc.name, usable, want)
			}
		})
	}
}

// TestSettingOfNoConcern: a volume for no place in particular needs no setting of keys.
func TestSettingOfNoConcern(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		delete(f.settings, request.TopologySetting)
		c := newController(f)
		ordered(t, c, createRequest("vol-1", gib))
		r := createRequest("vol-2", gib)
		r.AccessibilityRequirements = &spec.TopologyRequirement{
			Requisite: []*spec.Topology{{Segments: map[string]string{request.LabelZone: "z"}}}}
		_, err := c.CreateVolume(background, r)
		csitest.Wants(t, err, codes.Unavailable)
		csitest.Says(t, err, request.TopologySetting)
	})
}
