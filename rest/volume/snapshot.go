package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/admission"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
	"ankole.storage/controlplane/volume/clone"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

// Snapshots has the engines of volumes work on their snapshots, and on what file systems hold.
type Snapshots interface {
	// List returns the snapshots by name, the head included.
	List(ctx context.Context, e *lh.Engine) (map[string]lh.SnapshotInfo, error)
	// Take takes a snapshot; one of that name that is there already is not changed. freeze: a mounted
	// file system is frozen meanwhile.
	Take(ctx context.Context, e *lh.Engine, name string, labels map[string]string, freeze bool) error
	// Remove marks a snapshot as removed.
	Remove(ctx context.Context, e *lh.Engine, name string) error
	// Purge begins to give the space of removed snapshots back; one under way is as good.
	Purge(ctx context.Context, e *lh.Engine) error
	// Revert makes the content what it was at a snapshot; the frontend must be down.
	Revert(ctx context.Context, e *lh.Engine, name string) error
	// Trim has the mounted file system give back what it does not use, and returns how many bytes that
	// were; it takes as long as that does.
	Trim(ctx context.Context, e *lh.Engine) (bytes int64, err error)
}

// errMigrating refuses what a second engine would not take part in; clients know the text.
var errMigrating = errors.New("cannot operate during migration")

// snapshotted is a volume whose engine can be asked about snapshots.
type snapshotted struct {
	q      *serve.Request
	volume *lh.Volume
	engine *lh.Engine
	calls  Snapshots
	has    map[string]lh.SnapshotInfo
}

// withSnapshots is an action on all snapshots of a running engine. verb is what errors say.
func (a *API) withSnapshots(verb string, do func(p *snapshotted) (any, error)) serve.Handler {
	return func(q *serve.Request) (any, error) {
		name := q.Params["name"]
		p, err := a.askEngine(q, name)
		var out any
		if err == nil {
			out, err = do(p)
		}
		if err != nil {
			return nil, fmt.Errorf("failed to %s for volume %s: %w", verb, name, err)
		}
		return out, nil
	}
}

// withSnapshot is one on a snapshot that the input names.
func (a *API) withSnapshot(verb string, do func(p *snapshotted, in resource.SnapshotInput) (any, error)) serve.Handler {
	return func(q *serve.Request) (any, error) {
		var in resource.SnapshotInput
		if err := q.Decode(&in); err != nil {
			return nil, err
		}
		return a.withSnapshots(verb, func(p *snapshotted) (any, error) { return do(p, in) })(q)
	}
}

func (a *API) askEngine(q *serve.Request, name string) (*snapshotted, error) {
	v, err := readVolume(q.Context(), q.Objects, name)
	if err != nil {
		return nil, err
	}
	p := &snapshotted{q: q, volume: v.volume}
	for i := range v.engines {
		if p.engine == nil || v.engines[i].Spec.Active {
			p.engine = &v.engines[i]
		}
	}
	switch {
	case p.engine == nil:
		return nil, errors.New("cannot find engine")
	case p.engine.Status.CurrentState != lh.InstanceStateRunning:
		return nil, errors.New("engine is not running; attach the volume")
	}
	if p.calls, err = a.snapshotCalls(); err != nil {
		return nil, err
	}
	p.has, err = p.calls.List(q.Context(), p.engine)
	return p, err
}

// snapshotCalls is what has engines work on snapshots.
func (a *API) snapshotCalls() (Snapshots, error) {
	if have := a.Snapshots; have != nil {
		if calls := have(); calls != nil {
			return calls, nil
		}
	}
	return nil, errors.New("no manager leads, so that the engine cannot be reached; retry in a few seconds")
}

// mayChange refuses changes of a volume that somebody else fills.
func (p *snapshotted) mayChange() error { return maySnapshot(p.volume) }

func maySnapshot(v *lh.Volume) error {
	switch {
	case v.Status.IsStandby:
		return fmt.Errorf("it is not allowed for standby volume %s", v.Name)
	case v.Spec.MigrationNodeID != "":
		return errMigrating
	}
	return nil
}

// find returns a snapshot that is not the head.
func (p *snapshotted) find(name string) (lh.SnapshotInfo, error) {
	s, ok := p.has[name]
	if !ok || name == "" || name == lh.VolumeHeadName {
		return s, fmt.Errorf("cannot find snapshot '%s' for volume '%s'", name, p.volume.Name)
	}
	return s, nil
}

func createSnapshot(p *snapshotted, in resource.SnapshotInput) (any, error) {
	if in.Name == "" {
		in.Name = naming.RandomSnapshotName()
	}
	if err := p.mayChange(); err != nil {
		return nil, err
	}
	if err := naming.CheckSnapshotName(in.Name); err != nil {
		return nil, err
	}
	if err := admission.CheckSnapshotLabels(in.Name, in.Labels); err != nil {
		return nil, err
	}
	if _, ok := p.has[in.Name]; ok {
		return nil, fmt.Errorf("snapshot %s exists already; choose another name", in.Name)
	}
	settings, err := stored.Read(p.q.Context(), p.q.Objects.Reader, p.q.Objects.Namespace)
	if err != nil {
		return nil, err
	}
	freeze := p.volume.Spec.FreezeFilesystemForSnapshot.Or(settings.Bool(setting.FreezeFilesystemForSnapshot))
	if err := p.calls.Take(p.q.Context(), p.engine, in.Name, in.Labels, freeze); err != nil {
		return nil, err
	}
	has, err := p.calls.List(p.q.Context(), p.engine)
	if err != nil {
		return nil, err
	}
	return snapshotView(p.q, has[in.Name], nil), nil
}

func listSnapshots(p *snapshotted) (any, error) {
	sums, err := p.checksums()
	if err != nil {
		return nil, err
	}
	views := make([]*resource.Snapshot, 0, len(p.has))
	for _, name := range slices.Sorted(maps.Keys(p.has)) {
		views = append(views, snapshotView(p.q, p.has[name], sums))
	}
	return serve.Collection(p.q, resource.TypeSnapshot, views), nil
}

func getSnapshot(p *snapshotted, in resource.SnapshotInput) (any, error) {
	s, ok := p.has[in.Name]
	if !ok {
		return nil, fmt.Errorf("cannot find snapshot '%s' for volume '%s'", in.Name, p.volume.Name)
	}
	sums, err := p.checksums()
	return snapshotView(p.q, s, sums), err
}

func removeSnapshot(p *snapshotted, in resource.SnapshotInput) (any, error) {
	err := p.mayChange()
	if err == nil {
		_, err = p.find(in.Name)
	}
	if err == nil {
		err = p.mayRemove(in.Name)
	}
	if err == nil {
		err = p.calls.Remove(p.q.Context(), p.engine, in.Name)
	}
	if err != nil {
		return nil, err
	}
	return show(p.q, p.volume.Name)
}

func purgeSnapshots(p *snapshotted) (any, error) {
	err := p.mayPurge()
	if err == nil {
		err = p.calls.Purge(p.q.Context(), p.engine)
	}
	if err != nil {
		return nil, err
	}
	return show(p.q, p.volume.Name)
}

// revertSnapshot answers with nothing, as the reference does.
func revertSnapshot(p *snapshotted, in resource.SnapshotInput) (any, error) {
	if err := p.mayChange(); err != nil {
		return nil, err
	}
	if !p.volume.Spec.DisableFrontend || p.engine.Status.Endpoint != "" {
		return nil, errors.New(
			"failed to revert snapshot for volume " + p.volume.Name + " with frontend enabled; attach it for maintenance")
	}
	s, err := p.find(in.Name)
	if err == nil && s.Removed {
		err = fmt.Errorf("snapshot %s is marked as removed", in.Name)
	}
	if err != nil {
		return nil, err
	}
	return nil, p.calls.Revert(p.q.Context(), p.engine, in.Name)
}

// mayRemove refuses to remove what a volume is still to be filled with.
func (p *snapshotted) mayRemove(name string) error {
	var volumes lh.VolumeList
	if err := p.q.Objects.List(p.q.Context(), &volumes); err != nil {
		return fmt.Errorf("listing volumes: %w", err)
	}
	for i := range volumes.Items {
		if v := &volumes.Items[i]; clone.Holds(v, p.volume.Name, name) {
			return fmt.Errorf("volume %s is being filled with snapshot %s; retry when that is done, or delete volume %s", v.Name,
				name, v.Name)
		}
	}
	return nil
}

// mayPurge judges by the settings and by what else the node is at.
func (p *snapshotted) mayPurge() error {
	settings, err := stored.Read(p.q.Context(), p.q.Objects.Reader, p.q.Objects.Namespace)
	if err != nil {
		return err
	}
	if settings.Bool(setting.DisableSnapshotPurge) {
		return errors.New("setting disable-snapshot-purge is on")
	}
	if p.volume.Spec.MigrationNodeID != "" {
		return errMigrating
	}
	var engines lh.EngineList
	if err := p.q.Objects.List(p.q.Context(), &engines); err != nil {
		return fmt.Errorf("listing engines: %w", err)
	}
	limit := settings.Int(setting.SnapshotHeavyTaskConcurrentLimit)
	if p.engine.Crowded(engines.Items, limit) {
		return fmt.Errorf("%d purges or clones run on node %s, as many as setting %s allows; retry when one has ended",
			limit, p.engine.Spec.NodeID, setting.SnapshotHeavyTaskConcurrentLimit)
	}
	return nil
}

// checksums are those of the volume's snapshot objects, by name.
func (p *snapshotted) checksums() (map[string]string, error) {
	var list lh.SnapshotList
	if err := listSnapshotsOf(p.q.Context(), p.q.Objects, p.volume.Name, &list); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for i := range list.Items {
		out[list.Items[i].Name] = list.Items[i].Status.Checksum
	}
	return out, nil
}

// listSnapshotsOf reads the snapshot objects of a volume live: a client that has just ordered one
// finds it.
func listSnapshotsOf(ctx context.Context, o *serve.Objects, volume string, into *lh.SnapshotList) error {
	err := o.Live.List(ctx, into, client.InNamespace(o.Namespace),
		client.MatchingLabels(naming.VolumeLabels(volume)))
	if err != nil {
		return fmt.Errorf("listing the snapshots of volume %s: %w", volume, err)
	}
	return nil
}

func snapshotView(q *serve.Request, s lh.SnapshotInfo, checksums map[string]string) *resource.Snapshot {
	return &resource.Snapshot{Resource: q.Envelope(resource.TypeSnapshot, s.Name, resource.WhenAlways),
		Name: s.Name, Parent: s.Parent, Children: s.Children, Removed: s.Removed, UserCreated: s.UserCreated,
		Created: s.Created, Size: s.Size, Labels: s.Labels, Checksum: checksums[s.Name]}
}

// orderSnapshot makes a Snapshot object. It returns at once; readyToUse tells when it is taken.
func orderSnapshot(q *serve.Request) (any, error) {
	var in resource.SnapshotCRInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	if in.Name == "" {
		in.Name = naming.RandomSnapshotName()
	}
	var v lh.Volume
	if err := q.Objects.Get(q.Context(), q.Params["name"], &v); err != nil {
		return nil, err
	}
	s := &lh.Snapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: q.Objects.Namespace, Name: in.Name, Labels: naming.VolumeLabels(v.Name)},
		Spec:       lh.SnapshotSpec{Volume: v.Name, CreateSnapshot: true, Labels: in.Labels},
	}
	err := maySnapshot(&v)
	if err == nil {
		err = admission.CheckSnapshot(nil, s)
	}
	if err == nil {
		err = q.Objects.Client.Create(q.Context(), s)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to create snapshot %s for volume %s: %w", in.Name, v.Name, err)
	}
	return snapshotCRView(q, s), nil
}

func listSnapshotObjects(q *serve.Request) (any, error) {
	name := q.Params["name"]
	if err := q.Objects.Get(q.Context(), name, &lh.Volume{}); err != nil {
		return nil, err
	}
	var list lh.SnapshotList
	if err := listSnapshotsOf(q.Context(), q.Objects, name, &list); err != nil {
		return nil, err
	}
	serve.SortByName(list.Items)
	views := make([]*resource.SnapshotCR, 0, len(list.Items))
	for i := range list.Items {
		views = append(views, snapshotCRView(q, &list.Items[i]))
	}
	return serve.Collection(q, resource.TypeSnapshotCR, views), nil
}

func getSnapshotObject(q *serve.Request) (any, error) {
	var in resource.SnapshotCRInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	var s lh.Snapshot
	if err := q.Objects.Get(q.Context(), in.Name, &s); err != nil {
		return nil, fmt.Errorf("failed to get snapshot %s: %w", in.Name, err)
	}
	return snapshotCRView(q, &s), nil
}

// deleteSnapshotObject deletes a Snapshot object, and with it the snapshot. One that does not exist
// is deleted already.
func deleteSnapshotObject(q *serve.Request) (any, error) {
	var in resource.SnapshotCRInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	var v lh.Volume
	if err := q.Objects.Get(q.Context(), q.Params["name"], &v); err != nil {
		return nil, err
	}
	var s lh.Snapshot
	err := errors.New("no snapshot named")
	if in.Name != "" {
		err = q.Objects.Get(q.Context(), in.Name, &s)
	}
	if ordered := s.Spec.CreateSnapshot && s.Status.CreationTime == ""; !ordered { // an order can always be withdrawn
		if may := maySnapshot(&v); may != nil {
			err = may
		}
	}
	if err == nil && s.Spec.Volume != v.Name {
		err = fmt.Errorf("it is a snapshot of volume %s", s.Spec.Volume)
	}
	if err == nil {
		err = q.Objects.Client.Delete(q.Context(), &s)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("failed to delete snapshot %s for volume %s: %w", in.Name, v.Name, err)
	}
	return &resource.Empty{Resource: q.Envelope(resource.TypeEmpty, "", resource.WhenAlways)}, nil
}

func snapshotCRView(q *serve.Request, s *lh.Snapshot) *resource.SnapshotCR {
	labels := s.Spec.Labels
	if len(labels) == 0 {
		labels = s.Status.Labels
	}
	st := &s.Status
	return &resource.SnapshotCR{Resource: q.Envelope(resource.TypeSnapshotCR, s.Name, resource.WhenAlways),
		Name: s.Name, CRCreationTime: s.CreationTimestamp.UTC().Format(time.RFC3339), Volume: s.Spec.Volume,
		CreateSnapshot: s.Spec.CreateSnapshot, Parent: st.Parent, Children: st.Children, MarkRemoved: st.MarkRemoved,
		UserCreated: st.UserCreated, CreationTime: st.CreationTime, Size: st.Size, Labels: labels, OwnerID: st.OwnerID,
		Error: st.Error, RestoreSize: st.RestoreSize, ReadyToUse: st.ReadyToUse, Checksum: st.Checksum,
		OrderedByCSI: naming.IsOrderedByCSI(s.Name, labels),
		Blocked:      st.Blocked, Deleting: !s.DeletionTimestamp.IsZero()}
}
