package orphan

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/firstseen"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
)

// AgentConfig of the agent of one node.
type AgentConfig struct {
	Namespace, NodeName string
	// Resolve turns a path as a Pod sees it into the one to open (hostpath.Resolve).
	Resolve func(path string) string
}

// Agent finds the replica directories of its own node that belong to nobody, and removes those
// whose Orphan is deleted. It runs in the manager Pod of every node; its manager's cache needs the
// node's own objects only. Use NewAgent.
type Agent struct {
	cfg    AgentConfig
	client client.Client
	live   client.Reader
	events record.EventRecorder
	// wakeups name orphans whose directory a look at the disks did not find.
	wakeups chan event.GenericEvent
	// asked says when a claim on a directory was found that only the API server or the lock tells.
	asked map[string]time.Time
	since *firstseen.Stamps

	mu sync.Mutex
	// failures are why the last removal failed, by the name of the orphan.
	failures map[string]string
}

// NewAgent returns the agent of a node.
func NewAgent(cfg AgentConfig) *Agent {
	return &Agent{cfg: cfg, wakeups: make(chan event.GenericEvent, mostOrphans), asked: map[string]time.Time{},
		failures: map[string]string{}, since: firstseen.New()}
}

// SetupWithManager registers it with the manager of the node's own objects.
func (a *Agent) SetupWithManager(mgr ctrl.Manager) error {
	a.client, a.live = mgr.GetClient(), mgr.GetAPIReader()
	//lint:ignore SA1019 clients of the reference read core/v1 events, which only the old recorder writes
	a.events = mgr.GetEventRecorderFor(naming.EventSource("orphan"))
	if err := mgr.Add(ctrlmanager.RunnableFunc(a.run)); err != nil {
		return fmt.Errorf("register the search for orphaned data: %w", err)
	}
	return loop.Setup(mgr, a.cfg.Namespace, a.controller())
}

func (a *Agent) controller() loop.Controller[*v1beta2.Orphan, dataSeen] {
	return loop.Controller[*v1beta2.Orphan, dataSeen]{
		Name:       naming.EventSource("orphan"),
		New:        func() *v1beta2.Orphan { return &v1beta2.Orphan{} },
		Gather:     a.gather,
		Decide:     decideData,
		Carry:      a.carry,
		Conditions: cleanable,
		Gone: func(_ context.Context, key client.ObjectKey) {
			a.failed(key.Name, nil)
			a.since.At(time.Time{}, key.Name, "")
		},
		Workers: 1, // a removal asks for all replicas
		Wakeups: loop.By(a.wakeups),
		Watches: []loop.Watch{
			loop.WatchingChanges(&v1beta2.Node{}, nodeChanged, func(n *v1beta2.Node) []string {
				return a.names(n.Namespace, func(*v1beta2.Orphan) bool { return true })
			}),
			loop.WatchingChanges(&v1beta2.Replica{}, func(before, after *v1beta2.Replica) bool {
				return before.Spec.DataDirectoryName != after.Spec.DataDirectoryName
			}, func(rep *v1beta2.Replica) []string {
				return a.names(rep.Namespace, func(o *v1beta2.Orphan) bool {
					return directoryOf(o) == rep.Spec.DataDirectoryName
				})
			}),
			loop.Watching(&v1beta2.Setting{}, func(s *v1beta2.Setting) []string {
				if !decidesDeletion(s) {
					return nil
				}
				return a.names(s.Namespace, func(*v1beta2.Orphan) bool { return true })
			}),
		},
	}
}

func decidesDeletion(s *v1beta2.Setting) bool {
	return s.Name == setting.OrphanResourceAutoDeletion || s.Name == setting.OrphanResourceAutoDeletionGracePeriod
}

// cleanable is the condition whose changes are told by events; a removal that fails has its own.
func cleanable(o *v1beta2.Orphan) []loop.Condition {
	for _, c := range o.Status.Conditions {
		if c.Type == v1beta2.OrphanConditionDataCleanable {
			return []loop.Condition{{Type: c.Type, Status: string(c.Status), Reason: c.Reason}}
		}
	}
	return nil
}

// nodeChanged says whether the data on a node may stand otherwise.
func nodeChanged(before, after *v1beta2.Node) bool {
	if condition.NodeReady(before) != condition.NodeReady(after) ||
		before.Spec.EvictionRequested != after.Spec.EvictionRequested ||
		!equality.Semantic.DeepEqual(before.Spec.Disks, after.Spec.Disks) {
		return true
	}
	for name := range after.Spec.Disks {
		was, is := before.Status.DiskStatus[name], after.Status.DiskStatus[name]
		if condition.DiskReady(was) != condition.DiskReady(is) || was.DiskUUID != is.DiskUUID {
			return true
		}
	}
	return false
}

// orphans lists those of data on this node, from the cache, to look at only.
func (a *Agent) orphans(ctx context.Context) ([]v1beta2.Orphan, error) {
	var list v1beta2.OrphanList
	err := a.client.List(ctx, &list, client.InNamespace(a.cfg.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingLabels{naming.LabelNode: naming.NodeLabel(a.cfg.NodeName)})
	if err != nil {
		return nil, fmt.Errorf("list orphans: %w", err)
	}
	return slices.DeleteFunc(slices.Clone(list.Items), func(o v1beta2.Orphan) bool { return !a.has(&o) }), nil
}

func (a *Agent) has(o *v1beta2.Orphan) bool {
	return o.Spec.OrphanType == v1beta2.OrphanTypeReplicaData && o.Spec.NodeID == a.cfg.NodeName
}

func (a *Agent) names(namespace string, which func(*v1beta2.Orphan) bool) (names []string) {
	all, err := a.orphans(context.Background())
	if err != nil || namespace != a.cfg.Namespace {
		return nil // the cache does not fail
	}
	for i := range all {
		if which(&all[i]) {
			names = append(names, all[i].Name)
		}
	}
	return names
}

// node returns the own Node from the cache, nil if it is gone.
func (a *Agent) node(ctx context.Context) (*v1beta2.Node, error) {
	return readNode(ctx, a.client, client.ObjectKey{Namespace: a.cfg.Namespace, Name: a.cfg.NodeName})
}

func readNode(ctx context.Context, c client.Reader, key client.ObjectKey) (*v1beta2.Node, error) {
	n := &v1beta2.Node{}
	err := c.Get(ctx, key, n)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get node %s: %w", key.Name, err)
	}
	return n, nil
}

func (a *Agent) open(path string) string { return a.cfg.Resolve(naming.InHostMount(path)) }

func (a *Agent) gather(ctx context.Context, o *v1beta2.Orphan) (dataSeen, error) {
	s := dataSeen{Since: a.since.At(time.Now(), o.Name, stampOf(o))}
	n, err := a.node(ctx)
	if err != nil || !a.has(o) || n == nil || !condition.NodeReady(n) {
		return s, err
	}
	at, name := placeOf(o), directoryOf(o)
	s.Mine, s.Standing = true, judge(n, at)
	if s.Standing.Reason != "" {
		return s, nil
	}
	values, err := stored.Read(ctx, a.client, o.Namespace)
	if err != nil {
		return s, err
	}
	s.Auto, s.Grace = autoDeletion(values, setting.OrphanKindReplicaData)
	if !validName(name) {
		s.Unseen, s.Problem = true, fmt.Sprintf("%q is not the name of a replica directory", name)
		return s, nil
	}
	if s.Exists, err = exists(a.open(at.Path), at.UUID, name); err != nil {
		s.Unseen, s.Problem = true, err.Error()
		return s, nil
	}
	if s.Problem = a.failure(o.Name); !s.Exists {
		return s, nil
	}
	if o.DeletionTimestamp == nil {
		owned, err := a.owned(ctx)
		s.Claim = owned[name]
		return s, err
	}
	held, err := claims(ctx, a.live, a.cfg.Namespace)
	s.Claim = held[name]
	return s, err
}

// carry removes the directory.
func (a *Agent) carry(_ context.Context, o *v1beta2.Orphan, _ dataSeen, _ any) error {
	at := placeOf(o)
	return a.failed(o.Name, remove(a.open(at.Path), at.UUID, directoryOf(o)))
}

func autoDeletion(v setting.Values, kind string) (bool, time.Duration) {
	return slices.Contains(strings.Split(v.String(setting.OrphanResourceAutoDeletion), ";"), kind),
		time.Duration(v.Int(setting.OrphanResourceAutoDeletionGracePeriod)) * time.Second
}

// failed notes how the removal of an orphan's directory ended, and returns that.
func (a *Agent) failed(orphan string, err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.failures, orphan)
	if err != nil {
		a.failures[orphan] = err.Error()
	}
	return err
}

func (a *Agent) failure(orphan string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failures[orphan]
}
