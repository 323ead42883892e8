//go:build !nolegacy

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/test/rig"
	"ankole.storage/test/testcluster"
)

// Images of a cluster that an older version has left behind. The older engine can
// be migrated and handed over. The older instance manager hands engines over, and knows neither the
// orders of processes nor how to be closed; the oldest one has no proxy and no hand-over either.
const (
	engineOlder   = "ankole/engine:older"
	managerOlder  = "ankole/instance-manager:older"
	managerOldest = "ankole/instance-manager:oldest"
)

// older is a cluster that is made to look as a version with instance managers of types engine and
// replica leaves it, and is upgraded then.
type older struct {
	*cluster
	ks kubernetes.Interface
	// image says which instance manager a node's engines have; managerOlder where it says nothing.
	image map[string]string
}

// startOlder starts a cluster that has the images of an older version too, and managerWithout if
// wanted.
func startOlder(t *testing.T, without bool) *older {
	t.Helper()
	images := t.TempDir()
	for image, commit := range map[string]string{managerOlder: rig.FirstLeave, managerOldest: rig.BeforeProxy} {
		program := filepath.Join(rig.Frozen(t, commit, "instance-manager"), "instance-manager")
		if image == managerOlder {
			program = withPlaintextFlag(t, program)
		}
		for _, command := range []string{"engine-manager", "longhorn-instance-manager"} {
			makeImage(t, images, naming.CanonicalImage(image), program, command)
		}
	}
	engine := filepath.Join(rig.Frozen(t, rig.FirstLeave, "engine"), "engine")
	makeImage(t, images, naming.CanonicalImage(engineOlder), engine, "engine")
	if without {
		makeManagerWithout(t, images)
	}
	c := startWith(t, testcluster.Options{Manager: true, NodeGrace: nodeGrace, Plaintext: true, Images: images,
		Args: []string{"--node-cpu", nodeCPUs}})
	ks := kubernetesOf(t, c)
	c.managersRun()
	return &older{cluster: c, ks: ks, image: map[string]string{}}
}

// scenario runs a part of a test under its own name.
func (o *older) scenario(name string, run func(t *testing.T)) {
	outer := o.t
	outer.Run(name, func(t *testing.T) {
		o.t = t
		defer func() { o.t = outer }()
		run(t)
	})
	if outer.Failed() {
		outer.FailNow() // what follows builds on it
	}
}

// age makes the cluster one of an older version: no manager of this version leads, and the
// processes of the volumes, which are attached, run in instance managers of types engine and
// replica. Objects say so. The managers that are there go on answering the witness's questions.
func (o *older) age(volumes ...string) {
	o.t.Helper()
	o.takeLead()
	o.t.Log("nobody leads")
	processes := map[string]*imrpc.ProcessSpec{}
	for _, v := range volumes {
		o.stopProcesses(v, processes)
	}
	for _, m := range o.instanceManagers() {
		m.Status.InstanceEngines, m.Status.InstanceReplicas = nil, nil // nobody follows them any more
		err := o.kube.Status().Update(context.Background(), &m)
		if err = errors.Join(err, o.kube.Delete(context.Background(), &m)); err != nil {
			o.t.Fatal(err)
		}
	}
	o.eventually("no instance manager is left", func(context.Context) error {
		if left := o.podUIDs(); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
	managers := o.makeManagers()
	o.t.Log("older instance managers run")
	for _, v := range volumes {
		o.startProcesses(v, processes, managers)
	}
	o.t.Log("processes run in them")
}

// podUIDs are the Pods of instance managers by name.
func (o *older) podUIDs() map[string]string {
	o.t.Helper()
	pods, err := o.ks.CoreV1().Pods(namespace).List(context.Background(), metav1.ListOptions{
		LabelSelector: naming.LabelComponent + "=" + naming.ComponentInstanceManager})
	if err != nil {
		o.t.Fatal(err)
	}
	uids := map[string]string{}
	for _, p := range pods.Items {
		uids[p.Name] = string(p.UID)
	}
	return uids
}

// stopProcesses ends the processes of an attached volume, the engine first, and notes how they were
// started. Objects stay as they are.
func (o *older) stopProcesses(volume string, specs map[string]*imrpc.ProcessSpec) {
	o.t.Helper()
	e, replicas := o.engineOf(volume), o.replicasOf(volume)
	type running struct{ name, binary, ip string }
	all := []running{{e.Name, naming.EngineBinaryInPod(e.Status.CurrentImage), e.Status.IP}}
	for _, r := range replicas {
		all = append(all, running{r.Name, naming.ReplicaBinaryInPod(r.Status.CurrentImage), r.Status.IP})
	}
	for _, p := range all {
		im := o.processes(p.ip)
		is, err := im.ProcessGet(context.Background(), &imrpc.ProcessGetRequest{Name: p.name})
		if err != nil {
			o.t.Fatal(err)
		}
		args := is.Spec.Args[:slices.Index(is.Spec.Args, "--listen")]
		specs[p.name] = &imrpc.ProcessSpec{Name: p.name, Binary: p.binary, Args: args,
			PortCount: is.Status.PortEnd - is.Status.PortStart + 1, Environment: o.environmentOf(p.name)}
	}
	for _, p := range all {
		im := o.processes(p.ip)
		o.eventually(p.name+" has ended", func(ctx context.Context) error {
			_, err := im.ProcessDelete(ctx, &imrpc.ProcessDeleteRequest{Name: p.name, Last: true})
			if status.Code(err) == codes.NotFound {
				return nil
			}
			return fmt.Errorf("deleted: %v", err)
		})
	}
}

// startProcesses runs the processes of a volume in the older instance managers of their nodes, and
// writes into the objects where they are.
func (o *older) startProcesses(volume string, specs map[string]*imrpc.ProcessSpec,
	managers map[string]*longhorn.InstanceManager) {
	o.t.Helper()
	e := o.engineOf(volume)
	addresses, now := map[string]string{}, map[string]string{}
	for _, r := range o.replicasOf(volume) {
		name, _ := o.legacyName(r.Spec.NodeID, longhorn.InstanceManagerTypeReplica)
		where := o.startProcess(specs[r.Name], managers[name])
		was := e.Spec.ReplicaAddressMap[r.Name]
		addresses[was] = net.JoinHostPort(where.IP, strconv.Itoa(where.Port))
		now[r.Name] = addresses[was]
		edit(o, r.Name, &longhorn.Replica{}, func(r *longhorn.Replica) error {
			r.Status.InstanceStatus = moved(r.Status.InstanceStatus, where)
			return o.kube.Status().Update(context.Background(), r)
		})
	}
	spec := specs[e.Name]
	for i, a := range spec.Args {
		if address, ok := strings.CutPrefix(a, "tcp://"); ok {
			spec.Args[i] = "tcp://" + addresses[address]
		}
	}
	name, _ := o.legacyName(e.Spec.NodeID, longhorn.InstanceManagerTypeEngine)
	where := o.startProcess(spec, managers[name])
	edit(o, e.Name, e, func(e *longhorn.Engine) error {
		e.Spec.ReplicaAddressMap = now
		if err := o.kube.Update(context.Background(), e); err != nil {
			return err
		}
		e.Status.InstanceStatus = moved(e.Status.InstanceStatus, where)
		e.Status.CurrentReplicaAddressMap = now
		return o.kube.Status().Update(context.Background(), e)
	})
}

// moved is the status of an instance whose process runs elsewhere. An older version knows no orders
// of processes, nor do its instance managers.
func moved(was, where longhorn.InstanceStatus) longhorn.InstanceStatus {
	was.InstanceManagerName, was.IP, was.StorageIP = where.InstanceManagerName, where.IP, where.StorageIP
	was.Port, was.UUID = where.Port, where.UUID
	return was
}

// startProcess starts a process in an older instance manager, waits until it runs, and writes it
// into field instances of the object.
func (o *older) startProcess(spec *imrpc.ProcessSpec, im *longhorn.InstanceManager) (at longhorn.InstanceStatus) {
	o.t.Helper()
	ip := im.Status.IP
	spec.PortArgs = []string{"--listen," + ip + ":"}
	service := o.processes(ip)
	o.eventually(spec.Name+" runs in "+im.Name, func(ctx context.Context) error {
		p, err := service.ProcessCreate(ctx, &imrpc.ProcessCreateRequest{Spec: spec})
		if status.Code(err) == codes.AlreadyExists {
			p, err = service.ProcessGet(ctx, &imrpc.ProcessGetRequest{Name: spec.Name})
		}
		if err != nil {
			return err
		}
		switch p.Status.State {
		case "running":
		case "error", "stopped":
			_, err := service.ProcessDelete(ctx, &imrpc.ProcessDeleteRequest{Name: spec.Name})
			return errors.Join(err, fmt.Errorf("it ended: %s", p.Status.ErrorMsg))
		default:
			return errors.New(p.Status.State)
		}
		at = longhorn.InstanceStatus{InstanceManagerName: im.Name, IP: ip, StorageIP: ip, Port: int(p.Status.PortStart),
			UUID: p.Status.Uuid}
		kind := longhorn.InstanceType(im.Spec.Type)
		edit(o, im.Name, im, func(im *longhorn.InstanceManager) error {
			if im.Status.Instances == nil {
				im.Status.Instances = map[string]longhorn.InstanceProcess{}
			}
			im.Status.Instances[spec.Name] = longhorn.InstanceProcess{Spec: longhorn.InstanceProcessSpec{Name: spec.Name},
				Status: longhorn.InstanceProcessStatus{State: "running", Type: kind, PortStart: int(p.Status.PortStart),
					PortEnd: int(p.Status.PortEnd)}}
			return o.kube.Status().Update(ctx, im)
		})
		return nil
	})
	return at
}

// edit reads an object and changes it, until nobody else has changed it meanwhile.
func edit[T client.Object](o *older, name string, into T, change func(T) error) {
	o.t.Helper()
	o.eventually("change "+name, func(ctx context.Context) error {
		if err := o.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into); err != nil {
			return err
		}
		return change(into)
	})
}

// pidsOf are the processes of volumes, each with its volume.
func (o *older) pidsOf(volumes ...string) map[string]string {
	o.t.Helper()
	pids := map[string]string{}
	for _, v := range volumes {
		for _, pid := range holding(o.Info.Dir, "--volume-name\x00"+v+"\x00") {
			pids[strconv.Itoa(pid)] = v
		}
	}
	return pids
}

func (o *older) replicasOf(volume string) []longhorn.Replica {
	o.t.Helper()
	var list longhorn.ReplicaList
	if err := o.kube.List(context.Background(), &list, client.InNamespace(namespace)); err != nil {
		o.t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(r longhorn.Replica) bool { return r.Spec.VolumeName != volume })
}

// holdLease writes who leads, and for how long without a word from it.
func (o *older) holdLease(holder string, seconds int32) {
	o.t.Helper()
	o.eventually("the lease of managers is "+holder+"'s", func(ctx context.Context) error {
		l, err := o.ks.CoordinationV1().Leases(lease.Namespace).Get(ctx, lease.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now := metav1.NowMicro()
		l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = &holder, &seconds
		l.Spec.AcquireTime, l.Spec.RenewTime = &now, &now
		_, err = o.ks.CoordinationV1().Leases(lease.Namespace).Update(ctx, l, metav1.UpdateOptions{})
		return err
	})
}

// takeLead has no manager of this version lead any more.
func (o *older) takeLead() {
	o.t.Helper()
	o.Permit(o.t, managersRestart)
	o.holdLease("an older version", 3600)
	killed := o.killManagers() // at once: what one of them does as leader must not go on
	o.eventually("the next managers answer, and none leads", func(ctx context.Context) error {
		next := slices.DeleteFunc(o.managerProcesses(), func(pid int) bool { return slices.Contains(killed, pid) })
		if len(next) < len(killed) {
			return fmt.Errorf("%d managers run, %d were killed", len(next), len(killed))
		}
		_, err := o.rest.Settings(ctx)
		return err
	})
}

// upgradeSystem lets the managers of this version start, and one of them lead, and waits until each
// node has its instance manager of type aio.
func (o *older) upgradeSystem() {
	o.t.Helper()
	o.killManagers()
	o.holdLease("", 1)
	o.eventually("each node has an aio instance manager that runs", func(context.Context) error {
		nodes := map[string]bool{}
		for _, m := range o.instanceManagers() {
			if m.Spec.Type == longhorn.InstanceManagerTypeAllInOne && m.Status.CurrentState == "running" {
				nodes[m.Spec.NodeID] = true
			}
		}
		if len(nodes) != len(o.Nodes) {
			return fmt.Errorf("on %d nodes", len(nodes))
		}
		return nil
	})
}

// legacyName is the name of a node's instance manager of an older type.
func (o *older) legacyName(node string, kind longhorn.InstanceManagerType) (name, image string) {
	if kind == longhorn.InstanceManagerTypeReplica {
		return legacyManagerName("r", node, managerOlder), managerOlder
	}
	image = managerOlder
	if other := o.image[node]; other != "" {
		image = other
	}
	return legacyManagerName("e", node, image), image
}

// legacyManagerName is the name of type aio with a letter of the type before the hash of node and
// image.
func legacyManagerName(letter, node, image string) string {
	return strings.Replace(naming.InstanceManagerName(node, image), "manager-", "manager-"+letter+"-", 1)
}

// makeManagers makes the instance managers of an older version on every node, each with its Pod,
// and waits until they run.
func (o *older) makeManagers() map[string]*longhorn.InstanceManager {
	o.t.Helper()
	made := map[string]*longhorn.InstanceManager{}
	for _, n := range o.Nodes {
		for _, kind := range []longhorn.InstanceManagerType{longhorn.InstanceManagerTypeEngine,
			longhorn.InstanceManagerTypeReplica} {
			name, image := o.legacyName(n.Name, kind)
			im := &longhorn.InstanceManager{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
				Labels: naming.InstanceManagerLabels(n.Name, image, string(kind))},
				Spec: longhorn.InstanceManagerSpec{Image: image, NodeID: n.Name, Type: kind}}
			o.eventually("instance manager "+name+" is made", func(ctx context.Context) error { return o.kube.Create(ctx, im) })
			if _, err := o.ks.CoreV1().Pods(namespace).Create(context.Background(), o.legacyPod(im),
				metav1.CreateOptions{}); err != nil {
				o.t.Fatal(err)
			}
			made[name] = im
		}
	}
	for name, im := range made {
		o.eventually("instance manager "+name+" runs", func(ctx context.Context) error {
			pod, err := o.ks.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if s := pod.Status.ContainerStatuses; len(s) != 1 || !s[0].Ready || pod.Status.PodIP == "" {
				return fmt.Errorf("%+v", pod.Status)
			}
			version, err := o.processes(pod.Status.PodIP).VersionGet(ctx, &emptypb.Empty{})
			if err != nil {
				return err
			}
			if err := o.kube.Get(ctx, client.ObjectKeyFromObject(im), im); err != nil {
				return err
			}
			im.Status.CurrentState, im.Status.OwnerID = longhorn.InstanceManagerStateRunning, im.Spec.NodeID
			im.Status.IP, im.Status.APIVersion, im.Status.APIMinVersion = pod.Status.PodIP,
				int(version.GetInstanceManagerAPIVersion()), int(version.GetInstanceManagerAPIMinVersion())
			return o.kube.Status().Update(ctx, im)
		})
	}
	return made
}

// legacyPod is the Pod of an older instance manager. The difference from that of the reference: it
// listens at its own address and not at all, as everything on a process node, and it mounts the
// devices of volumes by a path of their own.
func (o *older) legacyPod(im *longhorn.InstanceManager) *corev1.Pod {
	container, command := "engine-manager", "engine-manager"
	if im.Spec.Type == longhorn.InstanceManagerTypeReplica {
		container, command = "replica-manager", "longhorn-instance-manager"
	}
	yes, follow := true, corev1.MountPropagationHostToContainer
	var volumes []corev1.Volume
	var mounts []corev1.VolumeMount
	mount := func(name, host, at string) {
		volumes = append(volumes, corev1.Volume{Name: name,
			VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: host}}})
		mounts = append(mounts, corev1.VolumeMount{Name: name, MountPath: at, MountPropagation: &follow})
	}
	mount("host", "/", naming.HostRootInPod)
	if im.Spec.Type == longhorn.InstanceManagerTypeEngine {
		mount("engine-binaries", naming.EngineBinariesHost+"/", naming.EngineBinariesInPod)
		mount("unix-domain-socket", naming.UnixSocketsHost+"/", naming.InHostMount(naming.UnixSocketsHost)+"/")
		mount("dev", naming.DeviceDirectory, naming.DeviceDirectory)
	}
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: im.Name, Labels: im.Labels,
			Annotations: map[string]string{naming.AnnotationLastTolerations: "[]"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: longhorn.GroupVersion.String(), Kind: "InstanceManager",
				Name: im.Name, UID: im.UID, Controller: &yes, BlockOwnerDeletion: &yes}}},
		Spec: corev1.PodSpec{
			NodeName: im.Spec.NodeID, RestartPolicy: corev1.RestartPolicyNever,
			ServiceAccountName: "longhorn-service-account", PriorityClassName: "longhorn-critical", Volumes: volumes,
			Containers: []corev1.Container{{
				Name: container, Image: im.Spec.Image, VolumeMounts: mounts,
				Args: []string{command, "--debug", "daemon", "--listen", "$(POD_IP):8500"},
				Env: []corev1.EnvVar{{Name: "TLS_DIR", Value: naming.TLSFilesInPod}, field("POD_IP", "status.podIP"),
					field("POD_NAME", "metadata.name")},
				LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{
					Port: intstr.FromInt32(8500)}}, InitialDelaySeconds: 3, PeriodSeconds: 5, TimeoutSeconds: 4, FailureThreshold: 3},
				SecurityContext: &corev1.SecurityContext{Privileged: &yes},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: o.cpuShare(o.ks, im.Spec.NodeID, int64(legacyShares[im.Spec.Type].percent))}},
			}},
		},
	}
}

// processes is the process service of an instance manager.
func (o *older) processes(ip string) imrpc.ProcessManagerServiceClient {
	o.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+net.JoinHostPort(ip, "8500"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { conn.Close() })
	return imrpc.NewProcessManagerServiceClient(conn)
}

// environmentOf reads what a process was started with of our own variables.
func (o *older) environmentOf(instance string) map[string]string {
	o.t.Helper()
	pids := holding(o.Info.Dir, "-instance-name\x00"+instance+"\x00")
	if len(pids) != 1 {
		o.t.Fatalf("processes of %s: %v", instance, pids)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pids[0]))
	if err != nil {
		o.t.Fatal(err)
	}
	given := []string{"ANKOLE_VOLUME_UUID", "ANKOLE_VOLUME_SECRET", "ANKOLE_DATA_NETWORK", "ANKOLE_BLOCK_TRANSPORT",
		"ANKOLE_DEVICE_WAIT"}
	out := map[string]string{}
	for v := range strings.SplitSeq(string(text), "\x00") {
		if name, value, _ := strings.Cut(v, "="); slices.Contains(given, name) {
			out[name] = value
		}
	}
	return out
}

// withPlaintextFlag is a program that is told to serve in plaintext, as older builds do unasked.
func withPlaintextFlag(t *testing.T, program string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "instance-manager")
	text := "#!/bin/sh\nexec '" + program + "' \"$@\" --allow-plaintext '" + managerOlder + "'\n"
	if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}
