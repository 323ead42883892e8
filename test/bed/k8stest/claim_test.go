package k8stest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/test/lack"
)

// scenarioF11: a claim becomes a volume in a Pod, grows under it, by kubectl and by REST, is
// snapshot, restored and cloned, moves to another node with its data, and is deleted, by its claim
// and by its volume, all by Kubernetes' own controllers, sidecars and kubelets.
func scenarioF11(b *bed) {
	class := b.growing()
	began := time.Now()
	b.claim("data", claim{size: "512Mi", class: class})
	b.startPod("first", "node-1", "data")
	b.took("from the claim to a Pod that runs", began)
	sum := b.exec("first", `dd if=/dev/urandom of=/data/one bs=1M count=48 2>/dev/null; sync; sha256sum /data/one`)

	b.grows("first", "data", "768Mi", func() {
		b.kubectlOK("patch", "pvc", "data", "--type=merge", "-p", `{"spec":{"resources":{"requests":{"storage":"768Mi"}}}}`)
	})
	b.grows("first", "data", "1Gi", func() {
		if _, err := b.rest.ExpandVolume(context.Background(), b.volumeOf("data"), "1Gi"); err != nil {
			b.t.Fatal(err)
		}
	})

	b.snapshot("shot", "data")
	b.exec("first", `echo later >/data/two; sync`)
	b.claim("restored", claim{size: "1Gi", class: class,
		source: "{kind: VolumeSnapshot, apiGroup: snapshot.storage.k8s.io, name: shot}"})
	b.startPod("second", "node-2", "restored")
	if got := b.exec("second", `sha256sum /data/one; ls /data/two 2>/dev/null || true`); got != sum {
		b.t.Errorf("restored: %q, want %q and nothing that came after the snapshot", got, sum)
	}
	b.claim("cloned", claim{size: "2Gi", class: class, source: "{kind: PersistentVolumeClaim, name: data}"})
	b.startPod("third", "node-3", "cloned")
	if got, want := b.exec("third", `sha256sum /data/one; cat /data/two`), sum+"\nlater"; got != want {
		b.t.Errorf("cloned: %q, want %q", got, want)
	}
	b.awaitClaim("cloned", "2Gi")

	b.endPod("first")
	began = time.Now()
	b.startPod("moved", "node-3", "data")
	b.took("from a Pod on another node to its running", began)
	if got, want := b.exec("moved", `sha256sum /data/one; cat /data/two`), sum+"\nlater"; got != want {
		b.t.Errorf("on another node: %q, want %q", got, want)
	}
	b.kubectlOK("delete", "volumesnapshot", "shot")
	for _, p := range []string{"moved", "second", "third"} {
		b.endPod(p)
	}
	b.unclaim("data", "restored")
	b.deletedWithClaim("cloned")
}

// grows checks that a claim gets another size when it is asked for, and its file system in a Pod.
func (b *bed) grows(pod, name, size string, ask func()) {
	b.t.Helper()
	const kib = "df -k /data | tail -n 1 | awk '{print $2}'"
	before := b.exec(pod, kib)
	ask()
	b.awaitClaim(name, size)
	b.await("the file system has grown", func(context.Context) error {
		if after := b.exec(pod, kib); after == before {
			return fmt.Errorf("it has %s KiB", after)
		}
		return nil
	})
}

// deletedWithClaim deletes the volume of a claim, and waits until both are gone.
func (b *bed) deletedWithClaim(name string) {
	b.t.Helper()
	volume := b.volumeOf(name)
	if err := b.rest.DeleteVolume(context.Background(), volume); err != nil {
		b.t.Fatal(err)
	}
	b.gone(volume)
	b.await("claim and PersistentVolume of "+volume+" are gone", func(ctx context.Context) error {
		_, err := b.ks.CoreV1().PersistentVolumeClaims("default").Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return errors.New("the claim is there")
		}
		if client.IgnoreNotFound(err) == nil {
			if _, err = b.ks.CoreV1().PersistentVolumes().Get(ctx, volume, metav1.GetOptions{}); err == nil {
				return errors.New("the PersistentVolume is there")
			}
		}
		return client.IgnoreNotFound(err)
	})
}

// growing is a class whose file systems can grow here while they are mounted: the kernel grows ext4
// for those with CAP_SYS_RESOURCE only, which some machines for tests do not have.
func (b *bed) growing() string {
	if lack.GrowingExt4(b.t) {
		return "longhorn"
	}
	b.t.Log("ext4 cannot grow here while it is mounted: the claims are of XFS")
	b.apply(`apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: longhorn-xfs}
provisioner: driver.longhorn.io
allowVolumeExpansion: true
parameters: {numberOfReplicas: "3", fsType: xfs}
`)
	return "longhorn-xfs"
}

// rawBlock: a claim of volume mode Block is a device in a Pod, and keeps its content on the way to
// another node.
func rawBlock(b *bed) {
	b.claim("raw", claim{size: "64Mi", block: true})
	b.startPod("raw-1", "node-1", "raw")
	sum := b.exec("raw-1", `dd if=/dev/urandom of=/dev/data bs=1M count=64 conv=fsync 2>/dev/null; sha256sum </dev/data`)
	b.endPod("raw-1")
	b.startPod("raw-2", "node-2", "raw")
	if got := b.exec("raw-2", "sha256sum </dev/data"); got != sum || len(sum) < 64 {
		b.t.Errorf("on another node: %q, want %q", got, sum)
	}
	b.endPod("raw-2")
	b.unclaim("raw")
}

// migratableBlock: a block volume that several nodes may use is written by a Pod on one node; a
// second Pod starts on another node beside it, the first one ends, and the second reads what was
// written last, also while both were there.
func migratableBlock(b *bed) {
	b.apply(`apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: migratable}
provisioner: driver.longhorn.io
parameters: {numberOfReplicas: "3", migratable: "true"}
`)
	b.claim("moves", claim{size: "64Mi", class: "migratable", block: true, many: true})
	volume := b.volumeOf("moves")
	b.startPod("source", "node-1", "moves")
	b.exec("source", `dd if=/dev/urandom of=/dev/data bs=1M count=64 conv=fsync 2>/dev/null`)
	began := time.Now()
	b.startPod("target", "node-2", "moves")
	b.took("from a second Pod on another node to its running", began)
	b.nodesOf(volume, "node-1", "node-2")
	sum := b.exec("source", `dd if=/dev/urandom of=/dev/data bs=1M count=16 seek=16 conv=fsync 2>/dev/null
		sha256sum </dev/data`)
	began = time.Now()
	b.endPod("source")
	b.nodesOf(volume, "node-2")
	b.usable(volume, "node-2", 3)
	b.took("from the end of the first Pod to the volume on the node of the second", began)
	if got := b.exec("target", "sha256sum </dev/data"); got != sum || len(sum) < 64 {
		b.t.Errorf("on the other node: %q, want %q", got, sum)
	}
	b.exec("target", `dd if=/dev/urandom of=/dev/data bs=1M count=1 conv=fsync 2>/dev/null`)
	b.endPod("target")
	b.unclaim("moves")
	b.kubectlOK("delete", "storageclass", "migratable")
}

// nodesOf waits until a volume has its device on these nodes, and on no other.
func (b *bed) nodesOf(volume string, nodes ...string) {
	b.t.Helper()
	b.await(fmt.Sprintf("%s is on %v", volume, nodes), func(ctx context.Context) error {
		v, err := b.rest.Volume(ctx, volume)
		if err != nil {
			return err
		}
		var has []string
		for _, c := range v.Controllers {
			if c.Running && c.Endpoint != "" {
				has = append(has, c.HostID)
			}
		}
		slices.Sort(has)
		if !slices.Equal(has, nodes) {
			return fmt.Errorf("it is on %v", has)
		}
		return nil
	})
}

// encryptedClaim: the sample for encrypted volumes, applied as it is, makes a claim that is bound
// and can be deleted again: the provisioner may read the Secret. The volume is not mounted: these
// machines' kernel may have no dm_crypt (vm.TestEncryptedVolumes has).
func encryptedClaim(b *bed) {
	const sample = "../../../deploy/samples/encrypted.yaml"
	b.kubectlOK("apply", "-f", sample)
	b.claim("encrypted", claim{size: "64Mi", class: "longhorn-encrypted"})
	v, err := b.rest.Volume(context.Background(), b.volumeOf("encrypted"))
	if err != nil {
		b.t.Fatal(err)
	}
	if !v.Encrypted || v.Size != strconv.Itoa(64*mib) {
		b.t.Errorf("volume %s is encrypted: %v, and has %s bytes", v.Name, v.Encrypted, v.Size)
	}
	b.unclaim("encrypted")
	b.kubectlOK("delete", "-f", sample)
}

// scenarioD5: parameter dataLocality of a StorageClass, and the setting where it is absent.
func scenarioD5(b *bed) {
	restore := b.set("default-data-locality", "best-effort")
	defer restore()
	for _, c := range []struct {
		class, parameter, want string
		nodes                  int
	}{
		{"d5-best", "dataLocality: best-effort", "best-effort", b.Nodes},
		{"d5-off", "dataLocality: disabled", "disabled", 2},
		{"d5-none", "staleReplicaTimeout: \"30\"", "best-effort", 2},
	} {
		b.apply(fmt.Sprintf(`apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %s}
provisioner: driver.longhorn.io
parameters:
  numberOfReplicas: "1"
  %s
`, c.class, c.parameter))
		b.claim(c.class, claim{size: "32Mi", class: c.class})
		volume := b.volumeOf(c.class)
		if v, err := b.rest.Volume(context.Background(), volume); err != nil || v.DataLocality != c.want {
			b.t.Fatalf("class with %q: data locality %q (%v), want %q", c.parameter, v.DataLocality, err, c.want)
		}
		var sum, home string
		for k := 1; k <= c.nodes; k++ {
			b.startPod(c.class, b.NodeName(k), c.class)
			if k == 1 {
				sum = b.exec(c.class, `dd if=/dev/urandom of=/data/one bs=1M count=8 2>/dev/null; sync; sha256sum /data/one`)
				home = b.replicaOf(volume)
			}
			if c.want == "best-effort" {
				home = b.NodeName(k)
			}
			b.await("the only replica is on "+home, func(ctx context.Context) error { return b.replicaOn(ctx, volume, home) })
			if got := b.exec(c.class, `sha256sum /data/one`); got != sum || len(sum) < 64 {
				b.t.Errorf("%s on node %d: %q, want %q", c.class, k, got, sum)
			}
			b.endPod(c.class)
		}
		b.unclaim(c.class)
		b.kubectlOK("delete", "storageclass", c.class)
	}
}

// replicaOf is the node of a volume's only replica.
func (b *bed) replicaOf(volume string) string {
	b.t.Helper()
	v, err := b.rest.Volume(context.Background(), volume)
	if err != nil || len(v.Replicas) != 1 || v.Replicas[0].HostID == "" {
		b.t.Fatalf("replicas %+v (%v), want one with a place", v.Replicas, err)
	}
	return v.Replicas[0].HostID
}

// replicaOn says why a volume's only replica is not one in order on a node.
func (b *bed) replicaOn(ctx context.Context, volume, node string) error {
	v, err := b.rest.Volume(ctx, volume)
	if err != nil {
		return err
	}
	if len(v.Replicas) != 1 || v.Replicas[0].HostID != node || v.Replicas[0].Mode != "RW" {
		return fmt.Errorf("replicas %+v, want one on %s", v.Replicas, node)
	}
	return nil
}

// claim is what a PersistentVolumeClaim asks for.
type claim struct {
	size   string
	class  string // empty for the default one
	source string // of its content, as YAML
	block  bool
	many   bool // nodes may use it at a time
}

// claim makes a claim and waits until it has a volume.
func (b *bed) claim(name string, c claim) {
	b.t.Helper()
	text := fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s, namespace: default}
spec:
  accessModes: [%s]
  volumeMode: %s
  resources: {requests: {storage: %s}}
`, name, map[bool]string{true: "ReadWriteMany", false: "ReadWriteOnce"}[c.many],
		map[bool]string{true: "Block", false: "Filesystem"}[c.block], c.size)
	if c.class != "" {
		text += "  storageClassName: " + c.class + "\n"
	}
	if c.source != "" {
		text += "  dataSource: " + c.source + "\n"
	}
	b.apply(text)
	b.await("claim "+name+" is bound", func(ctx context.Context) error {
		p, err := b.ks.CoreV1().PersistentVolumeClaims("default").Get(ctx, name, metav1.GetOptions{})
		if err == nil && p.Status.Phase != "Bound" {
			err = fmt.Errorf("phase %s", p.Status.Phase)
		}
		return err
	})
}

// awaitClaim waits until a claim has a size, and nothing more is to be done for it.
func (b *bed) awaitClaim(name, size string) {
	b.t.Helper()
	want := resource.MustParse(size)
	b.await("claim "+name+" has "+size, func(ctx context.Context) error {
		p, err := b.ks.CoreV1().PersistentVolumeClaims("default").Get(ctx, name, metav1.GetOptions{})
		if err == nil && (p.Status.Capacity.Storage().Cmp(want) < 0 || len(p.Status.Conditions) > 0) {
			err = fmt.Errorf("capacity %s, conditions %+v", p.Status.Capacity.Storage(), p.Status.Conditions)
		}
		return err
	})
}

// volumeOf is the name of a claim's volume.
func (b *bed) volumeOf(name string) string {
	b.t.Helper()
	p, err := b.ks.CoreV1().PersistentVolumeClaims("default").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return p.Spec.VolumeName
}

// unclaim deletes claims, and waits until nothing of their volumes is left, in Kubernetes or with
// the managers.
func (b *bed) unclaim(names ...string) {
	b.t.Helper()
	var volumes []string
	for _, name := range names {
		volumes = append(volumes, b.volumeOf(name))
	}
	b.kubectlOK(append([]string{"delete", "pvc"}, names...)...)
	b.await("the PersistentVolumes of "+strings.Join(names, ", ")+" are gone", func(ctx context.Context) error {
		for _, name := range volumes {
			_, err := b.ks.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
			if err == nil {
				err = errors.New(name + " is there")
			}
			if client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		return nil
	})
	for _, name := range volumes {
		b.gone(name)
	}
}

// snapshot takes a VolumeSnapshot of a claim.
func (b *bed) snapshot(name, of string) {
	b.t.Helper()
	b.apply(fmt.Sprintf(`apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: longhorn-snapshot}
driver: driver.longhorn.io
deletionPolicy: Delete
parameters: {type: snap}
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: %s, namespace: default}
spec:
  volumeSnapshotClassName: longhorn-snapshot
  source: {persistentVolumeClaimName: %s}
`, name, of))
	b.await("VolumeSnapshot "+name+" is ready", func(context.Context) error {
		out, err := b.kubectl("get", "volumesnapshot", name, "-o", "jsonpath={.status.readyToUse} {.status.error.message}")
		if err == nil && !strings.HasPrefix(out, "true") {
			err = errors.New(out)
		}
		return err
	})
}

// startPod runs a Pod with a claim on a node: its file system at /data, or its device at /dev/data.
func (b *bed) startPod(name, node, of string) {
	b.t.Helper()
	where := "volumeMounts: [{name: data, mountPath: /data}]"
	p, err := b.ks.CoreV1().PersistentVolumeClaims("default").Get(context.Background(), of, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	if *p.Spec.VolumeMode == "Block" {
		where = "volumeDevices: [{name: data, devicePath: /dev/data}]"
	}
	b.apply(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  terminationGracePeriodSeconds: 0
  containers:
  - name: work
    image: %s
    imagePullPolicy: Never
    command: [sleep, "1000000"]
    %s
  volumes: [{name: data, persistentVolumeClaim: {claimName: %s}}]
`, name, node, tools, where, of))
	b.await("Pod "+name+" runs", func(ctx context.Context) error {
		p, err := b.ks.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err == nil && p.Status.Phase != "Running" {
			err = fmt.Errorf("phase %s", p.Status.Phase)
		}
		return err
	})
}

// endPod deletes a Pod of startPod.
func (b *bed) endPod(name string) {
	b.t.Helper()
	b.kubectlOK("delete", "pod", name)
}

// exec runs a command in a Pod.
func (b *bed) exec(pod, script string) string { b.t.Helper(); return b.execIn(pod, "work", script) }

// execIn runs a command in a container of a Pod.
func (b *bed) execIn(pod, container, script string) string {
	b.t.Helper()
	return strings.TrimSpace(b.kubectlOK("exec", pod, "-c", container, "--", "sh", "-euc", script))
}

// apply applies a manifest.
func (b *bed) apply(manifest string) {
	b.t.Helper()
	cmd := exec.Command(b.program, "kubectl", "--kubeconfig", b.Path("kubeconfig"), "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(manifest)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("kubectl apply: %v\n%s\n%s", err, out, manifest)
	}
}

// kubectlOK runs kubectl, which must succeed.
func (b *bed) kubectlOK(args ...string) string {
	b.t.Helper()
	out, err := b.kubectl(args...)
	if err != nil {
		b.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}
