package k8stest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	restclient "ankole.storage/rest/client"
	"ankole.storage/rest/resource"
	"ankole.storage/test/bed/cluster"
	"ankole.storage/test/rig"
)

func (b *bed) create(name string, size int64, replicas int) {
	b.t.Helper()
	_, err := b.rest.CreateVolume(context.Background(),
		restclient.VolumeSpec{Name: name, Size: strconv.FormatInt(size, 10), NumberOfReplicas: replicas})
	if err != nil {
		b.t.Fatal(err)
	}
}

// attach attaches a volume and waits until it has the given number of RW replicas.
func (b *bed) attach(name, node string, rw int) {
	b.t.Helper()
	b.await("attach "+name, func(ctx context.Context) error {
		_, err := b.rest.AttachVolume(ctx, name, resource.AttachInput{HostID: node})
		return err
	})
	b.usable(name, node, rw)
}

// usable waits until a volume is attached to a node, with so many RW replicas.
func (b *bed) usable(name, node string, rw int) {
	b.t.Helper()
	b.await(fmt.Sprintf("%s attached to %s with %d replicas", name, node, rw), func(ctx context.Context) error {
		v, err := b.rest.Volume(ctx, name)
		if err != nil {
			return err
		}
		n := 0
		for _, r := range v.Replicas {
			if r.Mode == "RW" {
				n++
			}
		}
		if v.State != "attached" || len(v.Controllers) == 0 || v.Controllers[0].HostID != node || n < rw ||
			v.Controllers[0].Endpoint != "/dev/longhorn/"+name {
			return fmt.Errorf("state %s, robustness %s, %d RW, controllers %+v", v.State, v.Robustness, n, v.Controllers)
		}
		return nil
	})
}

// degraded waits until the loss of a replica is known.
func (b *bed) degraded(name string) {
	b.t.Helper()
	b.await(name+" is degraded", func(ctx context.Context) error {
		v, err := b.rest.Volume(ctx, name)
		if err == nil && v.Robustness != "degraded" {
			err = fmt.Errorf("robustness %s", v.Robustness)
		}
		return err
	})
}

func (b *bed) detach(name string) {
	b.t.Helper()
	if _, err := b.rest.DetachVolume(context.Background(), name, resource.DetachInput{}); err != nil {
		b.t.Fatal(err)
	}
	b.await("detach "+name, func(ctx context.Context) error {
		v, err := b.rest.Volume(ctx, name)
		if err == nil && v.State != "detached" {
			err = fmt.Errorf("state %s", v.State)
		}
		return err
	})
}

// remove deletes a volume and waits until it and its data are gone.
func (b *bed) remove(name string) {
	b.t.Helper()
	if err := b.rest.DeleteVolume(context.Background(), name); err != nil {
		b.t.Fatal(err)
	}
	b.gone(name)
}

// gone waits until a volume is gone, and looks for what is left of its data.
func (b *bed) gone(name string) {
	b.t.Helper()
	b.await(name+" is gone", func(ctx context.Context) error {
		var v longhorn.Volume
		err := b.kube.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &v)
		if err == nil {
			return fmt.Errorf("state %s, finalizers %v", v.Status.State, v.Finalizers)
		}
		return client.IgnoreNotFound(err)
	})
	for k := 1; k <= b.Nodes; k++ {
		left, _ := filepath.Glob(b.view(k, "/var/lib/longhorn/replicas/"+name+"-*")) // the pattern is well-formed
		if len(left) > 0 {
			b.t.Errorf("left of volume %s: %v", name, left)
		}
	}
}

// view is the machine's path of a file as node k sees it.
func (b *bed) view(k int, path string) string {
	b.t.Helper()
	pid, err := cluster.PID(b.Plan, k)
	if err != nil {
		b.t.Fatal(err)
	}
	return fmt.Sprintf("/proc/%d/root%s", pid, path)
}

// number of a node.
func (b *bed) number(node string) int {
	k, err := strconv.Atoi(strings.TrimPrefix(node, "node-"))
	if err != nil {
		b.t.Fatal(err)
	}
	return k
}

// identical checks that all replicas of a detached volume hold the same.
func (b *bed) identical(volume string, n int) {
	b.t.Helper()
	var list longhorn.ReplicaList
	if err := b.kube.List(context.Background(), &list, client.InNamespace(namespace)); err != nil {
		b.t.Fatal(err)
	}
	var dirs []string
	for _, r := range list.Items {
		if r.Spec.VolumeName == volume {
			dirs = append(dirs, b.view(b.number(r.Spec.NodeID), filepath.Join(r.Spec.DiskPath, "replicas",
				r.Spec.DataDirectoryName)))
		}
	}
	if len(dirs) != n {
		b.t.Fatalf("volume %s has replicas %v, want %d", volume, dirs, n)
	}
	rig.Identical(b.t, dirs...)
}

// blockDevice is a volume as the node has it.
type blockDevice struct{ *os.File }

// Flush implements rig.Device.
func (d *blockDevice) Flush() error { return d.Sync() }

// device opens a volume's block device on its node.
func (b *bed) device(volume, node string) *blockDevice {
	b.t.Helper()
	f, err := os.OpenFile(b.view(b.number(node), "/dev/longhorn/"+volume), os.O_RDWR, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	return &blockDevice{f}
}

// killPod deletes a Pod at once and waits until it, or its name's former Pod, is gone.
func (b *bed) killPod(name string) {
	b.t.Helper()
	pods := b.ks.CoreV1().Pods(namespace)
	before, err := pods.Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	now := int64(0)
	if err := pods.Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		b.t.Fatal(err)
	}
	b.await("Pod "+name+" is gone", func(ctx context.Context) error {
		p, err := pods.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil && p.UID == before.UID {
			err = errors.New("it is there")
		}
		return err
	})
}

// deviceID tells a volume's block device from others at the same path.
func (b *bed) deviceID(volume string) string {
	b.t.Helper()
	var v longhorn.Volume
	if err := b.kube.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: volume}, &v); err != nil {
		b.t.Fatal(err)
	}
	return v.Status.DeviceID
}

// killHolders kills instance manager and manager of a node at once: nobody has the block devices of
// the node then.
func (b *bed) killHolders(node string) {
	b.t.Helper()
	b.reach(node)
	var pids []int
	for _, pid := range processes(b.NodeCgroup(b.number(node))) {
		argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && bytes.Contains(argv, []byte("\x00daemon\x00")) {
			pids = append(pids, pid)
		}
	}
	if len(pids) != 2 {
		b.t.Fatalf("manager and instance manager of %s: processes %v", node, pids)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			b.t.Fatal(err)
		}
	}
}

// set sets a setting, once it may be set; restore sets the former value and waits until that is in
// force.
func (b *bed) set(name, value string) (restore func()) {
	b.t.Helper()
	before, err := b.rest.Setting(context.Background(), name)
	if err != nil {
		b.t.Fatal(err)
	}
	put := func(value string) {
		b.t.Helper()
		b.await("setting "+name+"="+value, func(ctx context.Context) error {
			_, err := b.rest.SetSetting(ctx, name, value)
			return err
		})
	}
	put(value)
	return func() {
		b.t.Helper()
		put(before.Value)
		b.await("setting "+name+" is in force", func(ctx context.Context) error {
			s, err := b.rest.Setting(ctx, name)
			if err == nil && !s.Applied {
				err = errors.New("it is not applied")
			}
			return err
		})
	}
}

// took logs how long something took.
func (b *bed) took(what string, since time.Time) {
	b.t.Logf("%s: %.1f s", what, time.Since(since).Seconds())
}

// pod runs a Pod on a node until it ends, and returns what it wrote. It sees the node's devices of
// volumes.
func (b *bed) pod(node, name, script string) string {
	b.t.Helper()
	ctx := context.Background()
	yes := true
	follow := corev1.MountPropagationHostToContainer
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: corev1.PodSpec{
		NodeName: node, RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "work", Image: tools, ImagePullPolicy: corev1.PullNever,
			Command: []string{"sh", "-euc", script}, SecurityContext: &corev1.SecurityContext{Privileged: &yes},
			VolumeMounts: []corev1.VolumeMount{{Name: "devices", MountPath: "/dev/longhorn", MountPropagation: &follow}}}},
		Volumes: []corev1.Volume{{Name: "devices", VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: "/dev/longhorn"}}}},
	}}
	pods := b.ks.CoreV1().Pods("default")
	if _, err := pods.Create(ctx, p, metav1.CreateOptions{}); err != nil {
		b.t.Fatal(err)
	}
	return b.ended(name)
}

// ended waits until a Pod has ended well, and returns what it wrote. It is gone then.
func (b *bed) ended(name string) string {
	b.t.Helper()
	ctx, pods := context.Background(), b.ks.CoreV1().Pods("default")
	var p *corev1.Pod
	b.await("Pod "+name+" ends", func(ctx context.Context) error {
		got, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got.Status.Phase != corev1.PodSucceeded && got.Status.Phase != corev1.PodFailed {
			return fmt.Errorf("phase %s: %+v", got.Status.Phase, got.Status.ContainerStatuses)
		}
		p = got
		return nil
	})
	raw, err := pods.GetLogs(name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		b.t.Fatalf("logs of Pod %s: %v", name, err)
	}
	if p.Status.Phase != corev1.PodSucceeded {
		b.t.Fatalf("Pod %s has failed:\n%s", name, raw)
	}
	if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		b.t.Fatal(err)
	}
	return string(raw)
}
