package orphan

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/live"
	"ankole.storage/controlplane/object/naming"
)

const (
	// scanInterval is how often the folders of replicas are listed, as often as the agent of the node
	// looks at its disks.
	scanInterval = 30 * time.Second
	// askAgain is how long a claim is believed that the API server or a lock told of.
	askAgain = 10 * time.Minute
	// mostAtOnce Orphans are made after one look, and mostOrphans kept on a node.
	mostAtOnce  = 100
	mostOrphans = 1000
)

func (a *Agent) run(ctx context.Context) error {
	tick := time.NewTicker(scanInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := a.scan(ctx, time.Now()); err != nil && ctx.Err() == nil {
			slog.Warn("cannot look for orphaned data", "node", a.cfg.NodeName, "err", err)
		}
	}
}

// stray is a directory that the cache knows no object of.
type stray struct {
	at   place
	name string
}

// scan looks at the disks once, makes Orphans of what belongs to nobody, and wakes those whose
// directory is gone.
func (a *Agent) scan(ctx context.Context, now time.Time) error {
	n, err := a.node(ctx)
	if err != nil || n == nil || !condition.NodeReady(n) {
		return err
	}
	reported, err := a.orphans(ctx)
	if err != nil {
		return err
	}
	owned, err := a.owned(ctx)
	if err != nil {
		return err
	}
	look := look{now: now, node: n.Name, owned: owned, asked: a.asked, missing: map[string]*v1beta2.Orphan{},
		room: min(mostAtOnce, mostOrphans-len(reported)), stillAsked: map[string]time.Time{}}
	for i := range reported {
		look.missing[reported[i].Name] = &reported[i]
	}
	for _, disk := range slices.Sorted(maps.Keys(n.Spec.Disks)) {
		at := place{Disk: disk, Path: n.Spec.Disks[disk].Path, UUID: n.Status.DiskStatus[disk].DiskUUID}
		if judge(n, at).Reason != "" {
			look.keep(at)
			continue
		}
		if err := look.disk(a.open(at.Path), at); err != nil {
			slog.Warn("cannot look for orphaned data on a disk", "disk", disk, "err", err)
			look.keep(at)
		}
	}
	a.asked = look.stillAsked
	for _, o := range look.missing {
		select {
		case a.wakeups <- event.GenericEvent{Object: o}:
		default: // the next look wakes it
		}
	}
	return a.report(ctx, now, look.found)
}

// look is one look at all disks of a node.
type look struct {
	now  time.Time
	node string
	// owned are the directories of the node's replicas.
	owned map[string]string
	// missing are the orphans that are reported and not found yet.
	missing map[string]*v1beta2.Orphan
	// asked are claims that are believed; stillAsked those of them that concern what is there.
	asked, stillAsked map[string]time.Time
	room              int
	found             []stray
}

// owned are the directories of the node's replicas, from the cache, with who has them.
func (a *Agent) owned(ctx context.Context) (map[string]string, error) {
	var list v1beta2.ReplicaList
	err := a.client.List(ctx, &list, client.InNamespace(a.cfg.Namespace), client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list replicas: %w", err)
	}
	owned := make(map[string]string, len(list.Items))
	for i := range list.Items {
		owned[list.Items[i].Spec.DataDirectoryName] = "replica " + list.Items[i].Name
	}
	return owned, nil
}

// keep leaves the orphans of a disk alone that was not looked at.
func (l *look) keep(at place) {
	maps.DeleteFunc(l.missing, func(_ string, o *v1beta2.Orphan) bool { return placeOf(o).Disk == at.Disk })
}

func (l *look) disk(real string, at place) error {
	replicas, err := openReplicas(real, at.UUID)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer replicas.Close()
	return eachName(replicas, func(name string) { l.directory(replicas, at, name) })
}

func (l *look) directory(replicas *os.Root, at place, name string) {
	if !validName(name) {
		return
	}
	orphan := naming.OrphanDataName(l.node, at.Disk, at.Path, at.UUID, name)
	if _, reported := l.missing[orphan]; reported {
		delete(l.missing, orphan)
		return
	}
	if l.owned[name] != "" {
		return
	}
	if since, known := l.asked[name]; known && l.now.Sub(since) < askAgain {
		l.stillAsked[name] = since
		return
	}
	if len(l.found) < l.room && looksStray(l.now, replicas, name) {
		l.found = append(l.found, stray{at: at, name: name})
	}
}

// report makes the Orphans of what was found and is claimed by nobody. The API server is asked
// after the directories were seen: an object that names one was there before it.
func (a *Agent) report(ctx context.Context, now time.Time, found []stray) error {
	if len(found) == 0 {
		return nil
	}
	held, err := claims(ctx, a.live, a.cfg.Namespace)
	if err != nil {
		return err
	}
	for _, f := range found {
		if held[f.name] != "" || a.used(f) {
			a.asked[f.name] = now
			continue
		}
		o := OfData(a.cfg.Namespace, a.cfg.NodeName, f.at, f.name)
		err := a.client.Create(ctx, o)
		if apierrors.IsAlreadyExists(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("report %s: %w", pathOf(o), err)
		}
		a.events.Event(o, corev1.EventTypeWarning, naming.EventOrphaned, pathOf(o)+" belongs to no Replica")
	}
	return nil
}

func (a *Agent) used(f stray) bool {
	replicas, err := openReplicas(a.open(f.at.Path), f.at.UUID)
	if err != nil {
		return true
	}
	defer replicas.Close()
	return inUse(replicas, f.name)
}

// claims says which objects have which directories, by its name, from the API server. A directory
// that an object names on whatever node and disk is no orphan: a disk may have moved.
func claims(ctx context.Context, r client.Reader, namespace string) (map[string]string, error) {
	held := map[string]string{}
	err := live.Pages(ctx, r, func(list *v1beta2.ReplicaList) {
		for i := range list.Items {
			held[list.Items[i].Spec.DataDirectoryName] = "replica " + list.Items[i].Name
		}
	}, client.InNamespace(namespace))
	if err != nil {
		return nil, err
	}
	err = live.Pages(ctx, r, func(list *v1beta2.EngineList) {
		for i := range list.Items {
			if m := list.Items[i].Status.Membership; m != nil {
				for _, name := range m.Members {
					held[name] = "engine " + list.Items[i].Name
				}
			}
		}
	}, client.InNamespace(namespace))
	return held, err
}
