package k8stest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/test/bed/plan"
	"ankole.storage/test/rig"
	"ankole.storage/test/rights"
)

const (
	chart = "../../../deploy/chart"
	// writer writes files to a volume again and again, each with its sum, reads all of them back, and
	// counts. It ends with an error at the first failure.
	writer = `apiVersion: v1
kind: Pod
metadata: {name: writer, namespace: default}
spec:
  restartPolicy: Never
  nodeSelector: {kubernetes.io/hostname: node-2}
  terminationGracePeriodSeconds: 0
  containers:
  - name: work
    image: ankole/toolbox:dev
    imagePullPolicy: Never
    command:
    - sh
    - -euc
    - |
      i=0
      while true; do
        i=$((i + 1)); f=/data/$((i % 8))
        dd if=/dev/urandom of=$f bs=64k count=16 conv=fsync 2>/dev/null
        sha256sum $f >$f.sum; sync; echo 3 >/proc/sys/vm/drop_caches || true
        sha256sum -c /data/*.sum >/dev/null
        echo $i >/tmp/count; mv /tmp/count /tmp/done
      done
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: written}}]
`
)

// TestChart installs the system with Helm, upgrades it under I/O, and removes it.
func TestChart(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.kubectlOK("apply", "--server-side", "-f", filepath.Join(filepath.Dir(b.program), "addons", "snapshots"))
	h := newHelm(b)
	began := time.Now()
	h.ok("install", "longhorn", previous(t), "--namespace", namespace, "--create-namespace", "--set", "mutualTLS=false",
		"--set-string", "defaultSettings.storage-network="+plan.StorageNetwork, "--wait", "--timeout", "4m")
	b.installed()
	b.took("helm install, until all is ready", began)
	_ = t.Run("Upgrade", func(t *testing.T) { b.in(t, h.upgrade) }) &&
		t.Run("Uninstall", func(t *testing.T) { b.in(t, h.uninstall) }) &&
		t.Run("InstallAgain", func(t *testing.T) { b.in(t, h.installAgain) })
}

// in runs a part of a test.
func (b *bed) in(t *testing.T, part func()) {
	outer := b.t
	b.t = t
	defer func() { b.t = outer }()
	part()
}

// helm is the program, as deploy/helm pins it.
type helm struct {
	*bed
	program, home string
}

func newHelm(b *bed) *helm {
	b.t.Helper()
	cmd := exec.Command("go", "tool", "-n", "helm.sh/helm/v4/cmd/helm") // built, and kept by the build cache
	cmd.Dir = "../../../deploy/helm"
	path, err := cmd.Output()
	if err != nil {
		b.t.Fatalf("build helm: %v", err)
	}
	return &helm{bed: b, program: strings.TrimSpace(string(path)), home: b.t.TempDir()}
}

func (h *helm) run(args ...string) (string, error) {
	cmd := exec.Command(h.program, args...)
	cmd.Env = append(cmd.Environ(), "KUBECONFIG="+h.Path("kubeconfig"))
	for _, of := range []string{"CACHE", "CONFIG", "DATA"} {
		cmd.Env = append(cmd.Env, "HELM_"+of+"_HOME="+h.home)
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (h *helm) ok(args ...string) string {
	h.t.Helper()
	out, err := h.run(args...)
	if err != nil {
		h.t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// previous is a copy of the chart with a lower version.
func previous(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "chart")
	if err := os.CopyFS(dir, os.DirFS(chart)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "Chart.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(text), "\nversion: ")
	_, after, more := strings.Cut(after, "\n")
	if !found || !more {
		t.Fatalf("no version in\n%s", text)
	}
	if err := os.WriteFile(path, []byte(before+"\nversion: 0.0.1\n"+after), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// written is how often the writer has written and read everything.
func (b *bed) written() int {
	b.t.Helper()
	p, err := b.ks.CoreV1().Pods("default").Get(context.Background(), "writer", metav1.GetOptions{})
	if err != nil || p.Status.Phase == corev1.PodFailed {
		b.t.Fatalf("the writer has failed (%v):\n%s", err, b.kubectlOK("logs", "writer"))
	}
	out, err := b.kubectl("exec", "writer", "--", "cat", "/tmp/done")
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// writesOn waits until the writer has written and read everything three times more.
func (b *bed) writesOn() {
	b.t.Helper()
	before := b.written()
	b.await("the writer goes on", func(context.Context) error {
		if n := b.written(); n < before+3 {
			return fmt.Errorf("%d rounds, before %d", n, before)
		}
		return nil
	})
}

// upgrade has Helm change every image while a Pod and a block device write: managers and the driver
// are rolled, the engines of attached volumes are upgraded as the setting says, instance managers
// stay while they have engines, all connections to them are secured, and nobody sees an error.
func (h *helm) upgrade() {
	h.claim("written", claim{size: "256Mi"})
	h.apply(writer)
	h.await("the writer writes", func(context.Context) error {
		if h.written() == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	h.create("raw", 128*mib, 3)
	h.attach("raw", "node-1", 3)
	d := h.device("raw", "node-1")
	load := rig.StartLoad(h.t, d, 128*mib, 2)
	load.AwaitMore(h.t, 100)
	h.overStorage("raw", 3)

	values := []string{"--set-string", "defaultSettings.concurrent-automatic-engine-upgrade-per-node-limit=1",
		"--set-string", "defaultSettings.allow-live-engine-upgrade-on-same-image-commit=true"}
	for value, image := range map[string]string{"managerImage": "manager", "instanceManagerImage": "instance-manager",
		"engineImage": "engine", "driverImage": "csi"} {
		h.tag("docker.io/ankole/"+image+":dev", "docker.io/ankole/"+image+":next")
		values = append(values, "--set", value+"=ankole/"+image+":next")
	}
	old := map[string]bool{}
	for _, m := range h.instanceManagers() {
		old[m.Name] = true
	}
	began := time.Now()
	h.ok(append(values, "upgrade", "longhorn", chart, "--namespace", namespace, "--wait", "--timeout", "6m")...)
	h.took("helm upgrade, until the workloads are ready", began)
	h.refusedNothing("longhorn-pre-upgrade")
	h.reach()
	volumes := []string{"raw", h.volumeOf("written")}
	for _, v := range volumes {
		h.runsOn(v, "ankole/engine:next")
	}
	h.took("helm upgrade, until all engines are the new ones", began)
	h.secured()
	h.took("helm upgrade, until all instance managers have shown a certificate", began)
	h.writesOn()
	load.AwaitMore(h.t, 100)
	if p, err := h.ks.CoreV1().Pods("default").Get(context.Background(), "writer", metav1.GetOptions{}); err != nil ||
		p.Status.Phase != corev1.PodRunning || p.Status.ContainerStatuses[0].RestartCount != 0 {
		h.t.Errorf("the writer's Pod (%v): %+v", err, p.Status)
	}
	for _, v := range volumes {
		h.overStorage(v, 3)
	}
	h.replaced(old, volumes)
	h.moved(old, volumes, load)
	load.Finish()
	if err := d.Close(); err != nil {
		h.t.Fatal(err)
	}
	h.detach("raw")
	h.identical("raw", 3)
	h.attach("raw", "node-1", 3)
	h.overStorage("raw", 3)
	h.detach("raw")
	h.writesOn()
	reviewed.add(h.bed)
}

// replaced sees that managers, driver and instance managers are of the next version, and that the
// engines of volumes in use are where they were, in old instance managers.
func (h *helm) replaced(old map[string]bool, volumes []string) {
	h.t.Helper()
	h.images("next")
	fresh := 0
	for _, m := range h.instanceManagers() {
		if !old[m.Name] && m.Spec.Image == "ankole/instance-manager:next" {
			fresh++
		}
	}
	if fresh != h.Nodes {
		h.t.Errorf("%d instance managers of the new version, want one on each node", fresh)
	}
	for _, v := range volumes {
		if e := h.engineOf(v); !old[e.Status.InstanceManagerName] {
			h.t.Errorf("the engine of %s, which is in use, was moved to another instance manager", v)
		}
	}
}

// moved deletes the Pods of the old instance managers, one after the other, under the writers: what
// runs in them goes on in those of the new version.
func (h *helm) moved(old map[string]bool, volumes []string, load *rig.Load) {
	h.t.Helper()
	began := time.Now()
	for _, name := range slices.Sorted(maps.Keys(old)) {
		h.kubectlOK("-n", namespace, "delete", "pod", name, "--ignore-not-found")
		h.await(name+" is gone", func(context.Context) error {
			for _, m := range h.instanceManagers() {
				if m.Name == name {
					return fmt.Errorf("it is %s", m.Status.CurrentState)
				}
			}
			return nil
		})
		for _, v := range volumes {
			h.usable(v, h.engineOf(v).Spec.NodeID, 3)
		}
		load.AwaitMore(h.t, 100)
		h.writesOn()
	}
	for _, v := range volumes {
		if e := h.engineOf(v); old[e.Status.InstanceManagerName] {
			h.t.Errorf("the engine of %s is in an old instance manager, %s", v, e.Status.InstanceManagerName)
		}
	}
	for _, m := range h.instanceManagers() {
		if m.Spec.Image != "ankole/instance-manager:next" {
			h.t.Errorf("%s is left, of image %s", m.Name, m.Spec.Image)
		}
	}
	h.took("the old instance managers replaced under the writers", began)
}

// secured waits until every instance manager has shown a certificate.
func (b *bed) secured() {
	b.t.Helper()
	b.await("instance managers show certificates", func(ctx context.Context) error {
		pods, err := b.ks.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
			LabelSelector: "longhorn.io/component=instance-manager"})
		if err != nil {
			return err
		}
		if len(pods.Items) < b.Nodes {
			return fmt.Errorf("there are %d, on %d nodes", len(pods.Items), b.Nodes)
		}
		for _, p := range pods.Items {
			if p.Annotations["longhorn.io/grpc-tls-seen"] == "" {
				return fmt.Errorf("%s on %s has not", p.Name, p.Spec.NodeName)
			}
		}
		return nil
	})
}

// runsOn waits until a volume's engine is of an image.
func (b *bed) runsOn(volume, image string) {
	b.t.Helper()
	b.await(volume+" runs on "+image, func(ctx context.Context) error {
		v, err := b.rest.Volume(ctx, volume)
		if err == nil && v.CurrentImage != image {
			err = fmt.Errorf("it runs on %s, wanted %s", v.CurrentImage, v.Image)
		}
		return err
	})
}

// engineOf is the engine of an attached volume.
func (b *bed) engineOf(volume string) longhorn.Engine {
	b.t.Helper()
	var list longhorn.EngineList
	if err := b.kube.List(context.Background(), &list, client.InNamespace(namespace)); err != nil {
		b.t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Spec.VolumeName == volume {
			return e
		}
	}
	b.t.Fatalf("volume %s has no engine", volume)
	return longhorn.Engine{}
}

// images checks that all Pods of managers and of the driver are of a version.
func (b *bed) images(tag string) {
	b.t.Helper()
	for _, app := range []string{"longhorn-manager", "longhorn-ui", "longhorn-csi-plugin"} {
		pods, err := b.ks.CoreV1().Pods(namespace).List(context.Background(), metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			b.t.Fatal(err)
		}
		n := 0
		for _, p := range pods.Items {
			if p.DeletionTimestamp == nil && strings.HasSuffix(p.Spec.Containers[0].Image, ":"+tag) {
				n++
			}
		}
		if n != b.Nodes {
			b.t.Errorf("%d of %d Pods of %s have an image of version %s", n, b.Nodes, app, tag)
		}
	}
}

// uninstall: without confirmation Helm removes nothing, and says why; nor with it while a Pod uses
// a volume. Then it removes everything, with the data of volumes.
func (h *helm) uninstall() {
	refused := func(why string) {
		h.t.Helper()
		out, err := h.run("uninstall", "longhorn", "--namespace", namespace, "--timeout", "3m")
		if err == nil || !strings.Contains(out, why) {
			h.t.Fatalf("helm uninstall: %v, does not say %q\n%s", err, why, out)
		}
		h.images("next")
		h.writesOn()
	}
	refused("setting deleting-confirmation-flag is not true")
	if _, err := h.rest.SetSetting(context.Background(), "deleting-confirmation-flag", "true"); err != nil {
		h.t.Fatal(err)
	}
	refused("volumes are in use: " + h.volumeOf("written"))
	h.endPod("writer")
	volume := h.volumeOf("written")
	h.await("the claim's volume is detached", func(ctx context.Context) error {
		v, err := h.rest.Volume(ctx, volume)
		if err == nil && v.State != "detached" {
			err = fmt.Errorf("state %s", v.State)
		}
		return err
	})
	began := time.Now()
	h.ok("uninstall", "longhorn", "--namespace", namespace, "--timeout", "4m", "--wait")
	h.took("helm uninstall", began)
	h.await("the claim goes with its volume", func(ctx context.Context) error {
		_, err := h.ks.CoreV1().PersistentVolumeClaims("default").Get(ctx, "written", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there (%w)", err)
	})
	h.await("nothing is left", h.nothingLeft)
	for k := 1; k <= h.Nodes; k++ {
		left, _ := filepath.Glob(h.view(k, "/var/lib/longhorn/replicas/*")) // the pattern is well-formed
		if len(left) > 0 {
			h.t.Errorf("replicas are left: %v", left)
		}
	}
	h.refusedNothing("longhorn-uninstall")
}

// refusedNothing: by the API server's audit log an account has asked for something, and was refused
// nothing.
func (b *bed) refusedNothing(account string) {
	b.t.Helper()
	if seen := b.seen(account); len(seen.Used) == 0 || len(seen.Denied) > 0 {
		b.t.Errorf("%s used %d rights and was refused %v", account, len(seen.Used), rights.Sorted(seen.Denied))
	}
}

// nothingLeft looks for what an installation consists of.
func (h *helm) nothingLeft(context.Context) error {
	for _, args := range [][]string{
		{"-n", namespace, "get", "pods,daemonsets,deployments,jobs,cronjobs,pdb,services,roles,rolebindings,secrets,lease"},
		{"get", "crd", "-l", "longhorn-manager"},
		{"get", "validatingwebhookconfigurations,mutatingwebhookconfigurations,clusterroles,clusterrolebindings,csidrivers," +
			"storageclasses,priorityclasses,pv"},
	} {
		out, err := h.kubectl(append(args, "-o", "name")...)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		for line := range strings.Lines(out) {
			name := strings.TrimSpace(line)
			own := strings.Contains(name, "longhorn") || strings.HasPrefix(name, "pod/") || strings.Contains(name, "/csi-")
			// The sidecars of the driver leave their leases.
			if own && !strings.HasPrefix(name, "lease.coordination.k8s.io/") {
				return fmt.Errorf("%s is left", name)
			}
		}
	}
	return nil
}

// installAgain: what an uninstallation leaves on nodes is in nobody's way.
func (h *helm) installAgain() {
	h.readme()
	h.secured()
}
