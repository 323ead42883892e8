package networkclaim

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

func volume(name string, state v1beta2.VolumeState) *v1beta2.Volume {
	return &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Status: v1beta2.VolumeStatus{State: state}}
}

// cluster has the setting of a network, and volumes.
func cluster(t *testing.T, network string, volumes ...client.Object) API {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	s := &v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: setting.StorageNetwork}, Value: network}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(volumes, s)...)
	for _, i := range index.All() {
		if _, ok := i.Object.(*v1beta2.Volume); ok {
			builder = builder.WithIndex(i.Object, i.Field, i.Of)
		}
	}
	api := builder.Build()
	return API{Client: api, Live: api, Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
}

// written says for which volume the setting's object was written.
func written(t *testing.T, api API) string {
	t.Helper()
	var s v1beta2.Setting
	key := client.ObjectKey{Namespace: "ns", Name: setting.StorageNetwork}
	if err := api.Live.Get(t.Context(), key, &s); err != nil {
		t.Fatal(err)
	}
	_, name, _ := strings.Cut(s.Annotations[naming.AnnotationNetworkClaimed], " ")
	return name
}

// TestClaim: the network of the moment of the claim holds until the volume is detached, whatever
// the setting says.
func TestClaim(t *testing.T) {
	c, v := New(), volume("v", v1beta2.VolumeStateAttaching)
	before, after := setting.Values{setting.StorageNetwork: "a/b"}, setting.Values{setting.StorageNetwork: "c/d"}
	if network, unclaimed := c.Network(v, before); network != "a/b" || !unclaimed {
		t.Errorf("%q, to be claimed %v", network, unclaimed)
	}
	if err := c.Claim(t.Context(), cluster(t, "c/d", v), v); err != nil {
		t.Fatal(err)
	}
	if network, unclaimed := c.Network(v, before); network != "c/d" || unclaimed {
		t.Errorf("claimed: %q, to be claimed %v", network, unclaimed)
	}
	v.Status.State = v1beta2.VolumeStateDetached
	if network, unclaimed := c.Network(v, before); network != "a/b" || unclaimed {
		t.Errorf("detached: %q, to be claimed %v", network, unclaimed)
	}
	v.Status.State = v1beta2.VolumeStateAttached // by an earlier leader
	if network, unclaimed := c.Network(v, after); network != "c/d" || unclaimed {
		t.Errorf("attached: %q, to be claimed %v", network, unclaimed)
	}
	for value, want := range map[string]string{"": "", "no network at all": "", "a/b": "a/b"} {
		if got := canonical(value); got != want {
			t.Errorf("%q means %q, want %q", value, got, want)
		}
	}
}

// TestClaimWritesWhereNobodyHolds: the setting's object is written, which refuses a change that was
// judged before, unless another volume holds the network: then no such change is under way.
func TestClaimWritesWhereNobodyHolds(t *testing.T) {
	for name, tt := range map[string]struct {
		other   v1beta2.VolumeState
		claimed bool // by the other one
		writes  bool
	}{
		"alone":                           {"", false, true},
		"another one is detached":         {v1beta2.VolumeStateDetached, false, true},
		"another one is attached":         {v1beta2.VolumeStateAttached, false, false},
		"another one is being attached":   {v1beta2.VolumeStateAttaching, false, true},
		"and has claimed it":              {v1beta2.VolumeStateAttaching, true, false},
		"it had claimed it, and is free":  {v1beta2.VolumeStateDetached, true, true},
		"it had claimed it, and is going": {v1beta2.VolumeStateDetaching, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, v := New(), volume("v", v1beta2.VolumeStateAttaching)
			objects := []client.Object{v}
			if tt.other != "" {
				objects = append(objects, volume("other", tt.other))
			}
			api := cluster(t, "a/b", objects...)
			if tt.claimed {
				c.set("other", "a/b")
			}
			if err := c.Claim(t.Context(), api, v); err != nil {
				t.Fatal(err)
			}
			if got := written(t, api) == "v"; got != tt.writes {
				t.Errorf("written: %v", got)
			}
		})
	}
}

// TestClaimThatFails: without an answer of the store nothing is claimed.
func TestClaimThatFails(t *testing.T) {
	c, v := New(), volume("v", v1beta2.VolumeStateAttaching)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	api := cluster(t, "a/b", v)
	api.Live = ended{api.Live}
	if err := c.Claim(ctx, api, v); err == nil || !strings.Contains(err.Error(), "storage network") {
		t.Errorf("claimed: %v", err)
	}
	if _, unclaimed := c.Network(v, setting.Values{}); !unclaimed {
		t.Error("it counts as claimed")
	}
}

// ended is a reader that answers with the end of the context.
type ended struct{ client.Reader }

func (ended) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return ctx.Err()
}
