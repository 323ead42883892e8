package manager

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestVersionsFollowEachOther is the table of which manager may begin after which, and what is told
// of it.
func TestVersionsFollowEachOther(t *testing.T) {
	for _, tt := range []struct {
		name, before, mine string
		cliAPI             int // of the engine image in use
		refused            bool
		event, says        string
	}{
		{"the same", "v1.2.0", "v1.2.0", 12, false, "", ""},
		{"the next", "v1.2.0", "v1.3.0", 12, false, "PassedUpgradeCheck", "from version v1.2.0 to v1.3.0"},
		{"a patch, by number and not by letters", "v1.2.9", "v1.2.10", 12, false, "PassedUpgradeCheck", "v1.2.10"},
		{"a release after its candidate", "v1.2.0-rc1", "v1.2.0", 12, false, "PassedUpgradeCheck", "v1.2.0"},
		{"with an engine that is too old", "v1.2.0", "v2.0.0", 7, false, "FailedUpgradePostCheck", "img:old"},
		{"an older one", "v1.3.0", "v1.2.9", 12, true, "FailedUpgradePreCheck", "install version v1.3.0"},
		{"a build by hand", "v1.3.0", "dev", 12, false, "", ""},
		{"after a build by hand", "dev", "v1.3.0", 12, false, "", ""},
		{"a new cluster", "", "v1.3.0", 12, false, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			scheme, err := newScheme()
			if err != nil {
				t.Fatal(err)
			}
			image := &v1beta2.EngineImage{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ei-1"}}
			image.Spec.Image, image.Status.RefCount, image.Status.Version = "img:old", 1, "v1"
			image.Status.CLIAPIVersion, image.Status.CLIAPIMinVersion = tt.cliAPI, 1
			unused := image.DeepCopy()
			unused.Name, unused.Spec.Image, unused.Status.RefCount, unused.Status.CLIAPIVersion = "ei-2", "img:unused", 0, 1
			objects := []client.Object{image, unused}
			if tt.before != "" {
				objects = append(objects, &v1beta2.Setting{Value: tt.before,
					ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "current-longhorn-version", UID: "u"}})
			}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
			cfg := Common{Namespace: "ns", NodeName: "n1", Version: tt.mine}
			// Asked before the upgrade, the verdict is the same, and nothing is told.
			err = checkUpgrade(t.Context(), c, "ns", tt.mine)
			if errors.Is(err, ErrUpgradeRefused) != tt.refused || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("before the upgrade: %v, want it refused: %v", err, tt.refused)
			}
			for range 2 { // as a container that is started again does
				err := refuseOlder(t.Context(), c, cfg)
				if (err != nil) != tt.refused {
					t.Fatalf("refused: %v", err)
				}
				if err == nil {
					err = noteUpgrade(t.Context(), c, cfg)
				}
				if err != nil && !tt.refused {
					t.Fatal(err)
				}
			}
			var events corev1.EventList
			if err := c.List(t.Context(), &events); err != nil {
				t.Fatal(err)
			}
			if tt.event == "" {
				if len(events.Items) > 0 {
					t.Errorf("told %+v", events.Items)
				}
				return
			}
			if len(events.Items) != 1 {
				t.Fatalf("%d events", len(events.Items))
			}
			e := events.Items[0]
			if e.Reason != tt.event || !strings.Contains(e.Message, tt.says) || e.Count != 2 ||
				strings.Contains(e.Message, "unused") || (e.Type == "Warning") != strings.HasPrefix(tt.event, "Failed") {
				t.Errorf("told %s %s, %d times: %s", e.Type, e.Reason, e.Count, e.Message)
			}
		})
	}
}

// TestVersionIsReadUntilItIsKnown: an older manager does not begin because the API server did not
// answer.
func TestVersionIsReadUntilItIsKnown(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	c := lost{fake.NewClientBuilder().WithScheme(scheme).Build()}
	if err := refuseOlder(ctx, c, Common{Namespace: "ns"}); err == nil {
		t.Error("it begins")
	}
	if err := checkUpgrade(ctx, c, "ns", "v1.0.0"); err == nil || errors.Is(err, ErrUpgradeRefused) {
		t.Errorf("the verdict on an upgrade is %v, want none: to try again helps", err)
	}
}

// TestUpgradeThatCannotBeTold: an event that is refused keeps no manager from leading.
func TestUpgradeThatCannotBeTold(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&v1beta2.Setting{Value: "v1.0.0",
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "current-longhorn-version"}}).
		WithInterceptorFuncs(interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object,
			...client.CreateOption) error {
			return errors.New("exceeded quota: count/events")
		}}).Build()
	if err := noteUpgrade(t.Context(), c, Common{Namespace: "ns", Version: "v1.1.0"}); err != nil {
		t.Error(err)
	}
}

// lost is a client whose API server does not answer.
type lost struct{ client.WithWatch }

// Get implements client.Reader.
func (lost) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return context.DeadlineExceeded
}
