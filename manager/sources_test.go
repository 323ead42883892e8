package manager

import (
	"log/slog"
	"reflect"
	"testing"

	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"ankole.storage/controlplane/keys/volumekey"
	"ankole.storage/controlplane/loop"
	"ankole.storage/host/mtls"
)

// sources notes under which name each controller records events on the objects of its kind.
type sources struct {
	ctrl.Manager
	client client.Client
	asked  map[string]bool
	of     map[string]string
}

func (s *sources) GetClient() client.Client           { return s.client }
func (s *sources) GetAPIReader() client.Reader        { return s.client }
func (s *sources) Add(manager.Runnable) error         { return nil }
func (s *sources) Register(r loop.Registration) error { s.of[r.Name] = kindOf(r.For); return nil }
func (s *sources) GetEventRecorderFor(name string) record.EventRecorder {
	s.asked[name] = true
	return &record.FakeRecorder{}
}

// TestEventSources: clients find the events of a controller by the component that is their source.
func TestEventSources(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	s := &sources{client: fake.NewClientBuilder().WithScheme(scheme).Build(), asked: map[string]bool{},
		of: map[string]string{}}
	p := &control{cfg: Config{Common: Common{Namespace: "ns", NodeName: "n1"}}, who: &Leadership{},
		certificates: mtls.Open("", slog.Default())}
	parts, err := p.reconcilers(s, &volumekey.Keys{})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range parts {
		if err := part.SetupWithManager(s); err != nil {
			t.Fatal(err)
		}
	}
	for name, kind := range map[string]string{
		"longhorn-volume-controller": "Volume", "longhorn-engine-controller": "Engine",
		"longhorn-replica-controller": "Replica", "longhorn-engine-image-controller": "EngineImage",
		"longhorn-node-controller": "Node", "longhorn-instance-manager-controller": "InstanceManager",
		"longhorn-setting-controller": "Setting", "longhorn-orphan-controller": "Orphan",
		"longhorn-volume-attachment-controller": "VolumeAttachment", "longhorn-snapshot-controller": "Snapshot",
		"longhorn-kubernetes-pod-controller": "Node", "longhorn-recurring-job-controller": "RecurringJob",
		"longhorn-kubernetes-pv-controller": "Volume",
	} {
		if s.of[name] != kind || !s.asked[name] {
			t.Errorf("source %s records on %q (asked for: %v), want %s", name, s.of[name], s.asked[name], kind)
		}
	}
}

func kindOf(o client.Object) string { return reflect.TypeOf(o).Elem().Name() }
