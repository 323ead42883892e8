//go:build !nolegacy

package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	restclient "ankole.storage/rest/client"
	"ankole.storage/test/rig"
)

// attachedUpgrade is the upgrade of a system with volumes attached. Volume a5 is attached to home,
// with a replica on each node; so is a17, which can migrate. a16 has its one replica on far, and is
// attached there by an engine in an instance manager without a proxy. third has replicas only.
type attachedUpgrade struct {
	*older
	home, far, third string
	endpoint         string
	load             *rig.Load
	device           userDevice
	pids, pods       map[string]string
	aio              map[string]types.UID // their Pods by node
	cleared          []string             // nodes with fields of 0
	content          [sha256.Size]byte    // of the first half of a16
	second           *rig.Load            // of the second half of a16
}

const volumeA5, volumeA16, volumeA17 = "a5", "a16", "a17"

// prepare ages the cluster with the volumes attached, starts the writer and upgrades the system. A
// person has asked for a part of a CPU for each instance manager, in the setting of long ago.
func (u *attachedUpgrade) prepare() {
	u.t.Helper()
	u.createOlder(restclient.VolumeSpec{Name: volumeA16, NumberOfReplicas: 1})
	u.far = u.placeOf(volumeA16)
	u.home = u.otherThan(u.far)
	for _, n := range u.Nodes {
		if n.Name != u.far && n.Name != u.home {
			u.third = n.Name
		}
	}
	u.image[u.far] = managerOldest
	u.createOlder(restclient.VolumeSpec{Name: volumeA5, NumberOfReplicas: 3})
	u.createOlder(restclient.VolumeSpec{Name: volumeA17, NumberOfReplicas: 3, AccessMode: "rwx", Migratable: true})
	u.attach(volumeA16, u.far, 1)
	u.endpoint = u.attach(volumeA5, u.home, 3)
	u.ticket(volumeA17, "source", u.home)
	u.awaitUsable(volumeA17, u.home, 3)
	u.age(volumeA5, volumeA16, volumeA17)
	u.leaveEngineCPU(engineCPU)
	u.device = u.cluster.device(u.endpoint)
	outer := u.t
	outer.Cleanup(func() {
		if u.device != nil {
			u.device.Close()
		}
	})
	u.load = rig.StartLoad(outer, u.device, 64*mib, 5)
	u.load.AwaitMore(outer, 100)
	u.pids, u.pods = u.pidsOf(volumeA5, volumeA16, volumeA17), u.podUIDs()
	u.upgradeSystem()
}

// leaveEngineCPU stores a value of setting guaranteed-engine-cpu as a version left it that had the
// setting; webhooks of this one refuse it.
func (u *attachedUpgrade) leaveEngineCPU(value string) {
	u.t.Helper()
	ctx := context.Background()
	hooks := u.ks.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if err := hooks.Delete(ctx, "longhorn-webhook-validator", metav1.DeleteOptions{}); err != nil {
		u.t.Fatal(err)
	}
	edit(u.older, "guaranteed-engine-cpu", &longhorn.Setting{}, func(s *longhorn.Setting) error {
		s.Value = value
		return u.kube.Update(ctx, s)
	})
}

// goesOn checks that the writer has seen no error, and goes on.
func (u *attachedUpgrade) goesOn() {
	u.t.Helper()
	u.load.Check()
	u.load.AwaitMore(u.t, 50)
	u.t.Logf("longest pause %v", u.load.TakePause(time.Now()))
}

// inUseKeepServing (A5): the engine manager that is not used goes; those in use keep their Pods,
// their processes and field instances, and nobody notices; one aio appears on each node.
func (u *attachedUpgrade) inUseKeepServing(t *testing.T) {
	u.gone(u.third, longhorn.InstanceManagerTypeEngine)
	for _, v := range []string{volumeA5, volumeA16, volumeA17} {
		u.runsOn(v, longhorn.InstanceManagerTypeEngine, longhorn.InstanceManagerTypeReplica)
	}
	if kinds := u.kinds(); kinds["engine"] != 2 || kinds["replica"] != 3 || kinds["aio"] != 3 {
		t.Errorf("instance managers: %v", kinds)
	}
	u.goesOn()
	u.undisturbed()
}

// undisturbed checks that every process of before the upgrade lives, in the same Pod.
func (u *attachedUpgrade) undisturbed() {
	u.t.Helper()
	now := u.podUIDs()
	for name, uid := range u.pods {
		if third, _ := u.legacyName(u.third, longhorn.InstanceManagerTypeEngine); name != third && now[name] != uid {
			u.t.Errorf("Pod %s was %s and is %q", name, uid, now[name])
		}
	}
	u.stays(u.aio, now)
	left := u.pidsOf(volumeA5, volumeA16, volumeA17) // and engine binaries that managers run
	for pid, volume := range u.pids {
		if left[pid] != volume || len(u.pids) != 10 {
			u.t.Errorf("process %s of %s is not among %v; before the upgrade %v", pid, volume, left, u.pids)
		}
	}
	for _, v := range []string{volumeA5, volumeA16, volumeA17} {
		if r := u.volume(v).Robustness; r != "healthy" {
			u.t.Errorf("volume %s is %s", v, r)
		}
	}
}

// oldField (A12): the API shows what an older instance manager has in its one field.
func (u *attachedUpgrade) oldField(t *testing.T) {
	name, _ := u.legacyName(u.home, longhorn.InstanceManagerTypeEngine)
	status, text := u.call(t, http.MethodGet, u.API+"/v1/instancemanagers/"+name, nil)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	var shown struct {
		ManagerType, CurrentState                    string
		Instances, InstanceEngines, InstanceReplicas map[string]any
	}
	if err := json.Unmarshal([]byte(text), &shown); err != nil {
		t.Fatal(err)
	}
	engine := u.engineOf(volumeA5).Name
	if shown.ManagerType != "engine" || shown.CurrentState != "running" || shown.Instances[engine] == nil ||
		len(shown.InstanceEngines)+len(shown.InstanceReplicas) > 0 {
		t.Errorf("%s is shown as %+v, and not with %s", name, shown, engine)
	}
}

// legacyRequests (B6): what older instance managers request is ruled by settings and node fields of
// their own. A change waits, and is seen to wait, until their last process has ended.
func (u *attachedUpgrade) legacyRequests(t *testing.T) {
	for kind, share := range legacyShares {
		name := share.setting
		u.eventually("the other request of "+string(kind)+" managers waits", func(context.Context) error {
			im := u.legacy(u.home, kind)
			c := longhorn.FindCondition(im.Status.Conditions, longhorn.InstanceManagerConditionSettingSynced)
			if c.Status != longhorn.ConditionFalse || !strings.Contains(c.Message, name) ||
				!strings.Contains(c.Message, fmt.Sprintf("will be %dm", migratedMillis)) {
				return fmt.Errorf("%+v", c)
			}
			return nil
		})
		u.eventually("setting "+name+" is not applied", func(ctx context.Context) error {
			var s longhorn.Setting
			if err := u.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &s); err != nil {
				return err
			}
			if s.Status.Applied {
				return errors.New("it is")
			}
			return nil
		})
	}
}

// migratedRequests (B8): the value of guaranteed-engine-cpu is in the nodes, the setting is empty
// and stays so, and no process has noticed.
func (u *attachedUpgrade) migratedRequests(t *testing.T) {
	u.eventually("the value of guaranteed-engine-cpu has moved into the nodes", func(ctx context.Context) error {
		var s longhorn.Setting
		if err := u.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "guaranteed-engine-cpu"}, &s); err != nil {
			return err
		}
		var nodes longhorn.NodeList
		if err := u.kube.List(ctx, &nodes, client.InNamespace(namespace)); err != nil {
			return err
		}
		for _, n := range nodes.Items {
			if n.Spec.EngineManagerCPURequest != migratedMillis || n.Spec.ReplicaManagerCPURequest != migratedMillis ||
				n.Spec.InstanceManagerCPURequest != migratedMillis {
				return fmt.Errorf("node %s has %d and %+v", n.Name, n.Spec.InstanceManagerCPURequest, n.Spec.LegacyNodeSpec)
			}
		}
		if s.Value != "" {
			return fmt.Errorf("the setting has %q", s.Value)
		}
		return nil
	})
	if _, err := u.rest.SetSetting(t.Context(), "guaranteed-engine-cpu", "0.5"); err == nil ||
		!strings.Contains(err.Error(), "read-only") {
		t.Errorf("setting it again: %v", err)
	}
	u.goesOn()
	u.undisturbed()
}
