// Package engine runs the processes of engines and keeps them in step with their objects.
//
// An engine is the process on a volume's node that offers the device and mirrors its I/O to the
// replicas. The volume controller writes an Engine's spec: whether and where it runs and which
// replicas it should have (replicaAddressMap). This package
//
//   - starts and stops the process (package instance),
//   - holds one stream of its state while it runs (Monitor) and copies what matters into the
//     status: modes of replicas, endpoint, snapshots, progress of rebuilds,
//   - has the engine admit replicas that are new in replicaAddressMap, which are then rebuilt, and
//     drop those that are not in it any more.
//
// It never writes status.membership: that is the witness record, kept by the relay of the instance
// managers' questions.
package engine

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/keys/volumekey"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/process/heard"
	"ankole.storage/controlplane/process/instance"
	"ankole.storage/controlplane/process/replica"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
)

// Config of the reconciler.
type Config struct {
	// Namespace of all objects.
	Namespace string
	// NodeName is the leader's node, the owner of engines without a node.
	NodeName string
	// RewatchMost bounds the pause before a broken stream of an engine is opened again; 0 means
	// five seconds.
	RewatchMost time.Duration
	// Logs reads the logs of engines; nil: none is read.
	Logs instance.LogReader
	// Keys yield what the processes of a volume show each other.
	Keys *volumekey.Keys
	// Purge has an engine begin to purge its snapshots (engineclient.EngineClient.SnapshotPurge); nil:
	// nothing is purged after a rebuild.
	Purge func(ctx context.Context, t engineclient.Target, skipIfInProgress bool) error
	// Heard is what instance managers say of their processes.
	Heard *heard.Lists
	// Credentials reads those of a backup target (store.Access.Credentials); nil: nothing is restored.
	Credentials func(ctx context.Context, t *v1beta2.BackupTarget) (map[string]string, error)
}

// Reconciler runs engines. Use New.
type Reconciler struct {
	cfg       Config
	client    client.Client
	processes instance.Processes
	engines   engineclient.Client
	monitor   *Monitor
	handOvers *handOvers
	logs      *instance.Logs
	released  released
	restores  *restores
}

// New returns the reconciler; processes reaches the instance managers, engines the engines.
func New(cfg Config, processes instance.Processes, engines engineclient.Client) *Reconciler {
	monitor := NewMonitor(engines, cfg.Namespace, cfg.RewatchMost)
	return &Reconciler{cfg: cfg, processes: processes, engines: engines, monitor: monitor,
		handOvers: newHandOvers(monitor.wake), logs: instance.NewLogs(cfg.Logs), restores: newRestores(monitor.wake)}
}

// SetupWithManager registers it; it runs on the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.client = mgr.GetClient()
	if err := mgr.Add(r.monitor); err != nil {
		return fmt.Errorf("add the engine monitor: %w", err)
	}
	if err := mgr.Add(r.restores.orders); err != nil {
		return fmt.Errorf("add the orders to restore: %w", err)
	}
	if err := mgr.Add(r.handOvers); err != nil {
		return fmt.Errorf("add the attempts to replace engines: %w", err)
	}
	return loop.Setup(mgr, r.cfg.Namespace, r.Controller())
}

// WithClient gives the reconciler its client where there is no manager (tests).
func (r *Reconciler) WithClient(c client.Client) *Reconciler {
	r.client = c
	return r
}

// Monitor is the streams the reconciler holds.
func (r *Reconciler) Monitor() *Monitor { return r.monitor }

// AwaitHandOvers waits until no engine is being replaced (tests).
func (r *Reconciler) AwaitHandOvers() { r.handOvers.running.Wait() }

// seen is what decide looks at besides the engine.
type seen struct {
	// Managers have the lists that were heard from them; Silent are those without, by name.
	Managers []v1beta2.InstanceManager
	Silent   map[string]bool
	// Young: a process of the engine has begun to start a moment ago.
	Young    bool
	NodeDown bool
	// State is the newest state of the running engine; nil while nothing is known.
	State *engineclient.State
	// Refused are the replica addresses the engine refused to admit, and the limits (limitsOf,
	// the pace) it refused to take, and why.
	Refused map[string]string
	// Unmirrored are the engine's snapshots that need an object.
	Unmirrored []string
	Image      string
	Owner      string
	// Images are all engine images.
	Images []v1beta2.EngineImage
	// HandOver is the attempt to hand the volume over that is asked for, or under way.
	HandOver      handOver
	HandOverKnown bool
	// Released is the instance manager that has been told that no engine follows.
	Released string
	// Answer is what the instance manager says of a process that it does not list.
	Answer instance.Answer
	// Log is what has become of a request for the engine's log.
	Log instance.LogAnswer
	// Pace is what rebuilds are to keep to.
	Pace pace
	// Clone is about the filling of the volume from another one.
	Clone cloneSeen
	// Restore is about the filling of the volume from a backup.
	Restore restoreSeen
	// Cleanup is about the snapshots that a rebuild leaves.
	Cleanup cleanupSeen
}

// Controller describes the loop, for tests that step it by hand.
func (r *Reconciler) Controller() loop.Controller[*v1beta2.Engine, seen] {
	return loop.Controller[*v1beta2.Engine, seen]{
		Name:       naming.EventSource("engine"),
		New:        func() *v1beta2.Engine { return &v1beta2.Engine{} },
		Gather:     r.gather,
		Decide:     decide,
		Carry:      r.carry,
		Conditions: conditions,
		Gone: func(_ context.Context, key client.ObjectKey) {
			r.monitor.Drop(key.Name)
			r.handOvers.forget(key.Name)
			r.restores.orders.Forget(key.Name)
			r.logs.Forget(key.Name)
			r.released.forget(key.Name)
		},
		Watches: []loop.Watch{
			loop.WatchingChanges(&v1beta2.InstanceManager{}, instance.Changed, r.onManager),
			loop.WatchingChanges(&v1beta2.Node{}, loop.Changed(condition.NodeDown), r.onNode),
			// An object that goes while its snapshot is there is made again.
			loop.WatchingChanges(&v1beta2.Snapshot{}, func(_, _ *v1beta2.Snapshot) bool { return false }, r.onSnapshot),
			loop.Watching(&v1beta2.Setting{}, r.onSetting),
		},
		Wakeups: append(loop.By(r.monitor.Wakeups()), loop.Wakeups{From: r.cfg.Heard.Engines(), Names: r.onHeard}),
	}
}

func conditions(e *v1beta2.Engine) []loop.Condition {
	return loop.Conditions(e.Status.Conditions)
}

func (r *Reconciler) gather(ctx context.Context, e *v1beta2.Engine) (seen, error) {
	s := seen{Owner: r.cfg.NodeName, Released: r.released.by(e),
		Log: r.logs.Answer(e.Name, string(e.UID), e.Spec.LogRequested)}
	s.HandOver, s.HandOverKnown = r.handOvers.of(e)
	settings, err := stored.Read(ctx, r.client, e.Namespace)
	if err != nil {
		return s, err
	}
	s.Image, s.Pace = settings.String(setting.DefaultInstanceManagerImage), paceOf(e, settings)
	if s.Managers, s.Silent, err = r.cfg.Heard.Near(ctx, r.client, e.Namespace, e.Name, e.Spec.NodeID,
		e.Status.InstanceManagerName, e.Status.DeviceIn); err != nil {
		return s, err
	}
	s.Young = r.cfg.Heard.Starting(e.Name)
	var images v1beta2.EngineImageList
	if err := r.client.List(ctx, &images, client.InNamespace(e.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return s, fmt.Errorf("list engine images: %w", err)
	}
	s.Images = images.Items
	// The node of a process is that of its instance manager; spec.nodeID may have moved on already.
	node := e.Spec.NodeID
	if im := instance.Choose(s.Managers, e.Status.InstanceManagerName, node, s.Image); im != nil {
		node = im.Spec.NodeID
		if !wanted(e) {
			s.Answer = instance.Ask(ctx, r.processes, im, e.Name, &e.Status.InstanceStatus)
		}
	}
	if node != "" {
		var n v1beta2.Node
		err := r.client.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: node}, &n, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return s, fmt.Errorf("get node %s: %w", node, err)
		}
		s.NodeDown = err != nil || condition.NodeDown(&n)
	}
	if e.Status.CurrentState != v1beta2.InstanceStateRunning || e.Status.IP == "" {
		r.monitor.Drop(e.Name)
		return s, nil
	}
	s.State, s.Refused = r.monitor.Watch(target(e), e.Status.UUID,
		append(slices.Collect(mapValues(e.Spec.ReplicaAddressMap)), limitsOf(e), s.Pace.String()))
	if s.Unmirrored, err = r.unmirrored(ctx, e); err != nil {
		return s, err
	}
	if s.Cleanup, err = r.gatherCleanup(ctx, e, s.State, settings); err != nil {
		return s, err
	}
	if s.Clone, err = r.gatherClone(ctx, e); err != nil {
		return s, err
	}
	s.Restore, err = r.gatherRestore(ctx, e, settings)
	return s, err
}

func mapValues(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for _, v := range m {
			if !yield(v) {
				return
			}
		}
	}
}

// target names the process of a running engine. Control calls use the Pod's own address, not the
// storage network's.
func target(e *v1beta2.Engine) engineclient.Target {
	return engineclient.Target{
		Address: net.JoinHostPort(e.Status.IP, strconv.Itoa(e.Status.Port)), Volume: e.Spec.VolumeName, Engine: e.Name,
		InstanceManager: e.Status.InstanceManagerName, Image: e.Status.CurrentImage,
	}
}

// Target names the process of an engine for calls; ok is false while it does not run.
func Target(e *v1beta2.Engine) (t engineclient.Target, ok bool) {
	if e.Status.CurrentState != v1beta2.InstanceStateRunning || e.Status.IP == "" || e.Status.Port == 0 {
		return engineclient.Target{}, false
	}
	return target(e), true
}

func (r *Reconciler) start(ctx context.Context, e *v1beta2.Engine, o startOrder) error {
	if o.After != "" {
		// By UUID: if this is done again, the next process must not be taken for the one that has ended.
		if err := r.processes.Delete(ctx, o.In, e.Name, o.After); err != nil {
			return err
		}
	}
	secret, err := r.cfg.Keys.Named(ctx, r.client, e.Spec.VolumeName)
	if err != nil {
		return err
	}
	settings, err := stored.Read(ctx, r.client, r.cfg.Namespace)
	if err != nil {
		return err
	}
	p := processIn(o.In, e, secret, settings)
	accepted, err := r.lossAccepted(ctx, e)
	if err != nil {
		return err
	}
	inSync, err := r.inSync(ctx, e)
	if err != nil {
		return err
	}
	p.Args = append(append(p.Args, accepted...), inSync...)
	return r.processes.Create(ctx, o.In, p)
}

func (r *Reconciler) add(ctx context.Context, e *v1beta2.Engine, address string) error {
	_, err := r.engines.ReplicaAdd(ctx, target(e), address)
	r.monitor.Refused(e.Name, address, err)
	return err
}

// processIn describes the engine's process in an instance manager, with the address of replicas
// that run there.
func processIn(im *v1beta2.InstanceManager, e *v1beta2.Engine, secret string,
	settings setting.Values) instance.Process {
	p := process(e, im.Status.IP, secret, settings)
	p.Environment["ANKOLE_LOCAL_ADDRESS"] = im.Status.StorageIP
	return p
}

// process describes the engine's process; see docs/architecture.md, "Instances". The engine must
// find replicas of the size that the volume is known to have; it is expanded once it runs.
func process(e *v1beta2.Engine, podIP, secret string, settings setting.Values) instance.Process {
	size := strconv.FormatInt(e.SizeBytes(), 10)
	args := []string{"--engine-instance-name", e.Name, "--volume-name", e.Spec.VolumeName, "controller", e.Spec.VolumeName}
	if frontend := naming.EngineFrontend(string(e.Spec.Frontend)); frontend != "" && !e.Spec.DisableFrontend {
		args = append(args, "--frontend", frontend)
	}
	args = append(args, "--size", size, "--current-size", size, "--engine-replica-timeout",
		strconv.Itoa(settings.Int(setting.EngineReplicaTimeout)))
	if e.Spec.RevisionCounterDisabled {
		args = append(args, "--disableRevCounter")
	}
	if e.Spec.UnmapMarkSnapChainRemovedEnabled {
		args = append(args, "--unmap-mark-snap-chain-removed")
	}
	if e.Spec.StandInFor != "" {
		args = append(args, "--stand-in-for", "tcp://"+e.Spec.StandInFor)
	}
	replicas := e.Spec.ReplicaAddressMap
	if len(e.Spec.UpgradedReplicaAddressMap) > 0 {
		replicas = e.Spec.UpgradedReplicaAddressMap
	}
	addresses := slices.Sorted(mapValues(replicas))
	for _, address := range addresses {
		args = append(args, "--replica", "tcp://"+address)
	}
	return instance.Process{
		Name: e.Name, Binary: naming.EngineBinaryInPod(e.Spec.Image), Args: args,
		PortCount: naming.EnginePortCount, PortArgs: []string{"--listen," + podIP + ":"},
		Order: e.Status.Order,
		Environment: map[string]string{
			"ANKOLE_VOLUME_UUID": replica.VolumeUID(e), "ANKOLE_VOLUME_SECRET": secret,
			"ANKOLE_DATA_NETWORK":    naming.Network(e.Spec.StorageNetwork),
			"ANKOLE_BLOCK_TRANSPORT": settings.String(setting.BlockDeviceTransport),
			"ANKOLE_DEVICE_WAIT":     strconv.Itoa(settings.Int(setting.BlockDeviceWait)) + "s",
		},
	}
}

// onManager wakes the engines that are or should be in an instance manager, and those it holds a
// stray process of.
func (r *Reconciler) onManager(im *v1beta2.InstanceManager) []string {
	names := append(r.listed(index.OnNode(im.Spec.NodeID)), r.listed(index.Within(im.Name))...)
	if list, _ := r.cfg.Heard.Of(im.Name); list != nil {
		names = slices.AppendSeq(names, maps.Keys(list.Engines))
	}
	return names
}

// onHeard wakes whom a piece of news from an instance manager is for: one engine, or all there.
func (r *Reconciler) onHeard(about client.Object) []string {
	if _, all := about.(*v1beta2.InstanceManager); !all {
		return []string{about.GetName()}
	}
	var im v1beta2.InstanceManager
	if err := r.client.Get(context.Background(), client.ObjectKeyFromObject(about), &im); err != nil {
		return nil // it is gone, which wakes them too
	}
	return r.onManager(&im)
}

func (r *Reconciler) onNode(n *v1beta2.Node) []string { return r.listed(index.OnNode(n.Name)) }

// listed names the engines that are found in a way.
func (r *Reconciler) listed(which client.ListOption) []string {
	var list v1beta2.EngineList
	if err := r.client.List(context.Background(), &list, client.InNamespace(r.cfg.Namespace), which,
		client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache does not fail; an object's own change wakes it too
	}
	out := make([]string, len(list.Items))
	for i := range list.Items {
		out[i] = list.Items[i].Name
	}
	return out
}
