package source

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/process/engine"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/volume/copies"
	"ankole.storage/controlplane/volume/snapshot"
)

// Engines is what is asked of engines about exports.
type Engines interface {
	SnapshotExport(ctx context.Context, t engineclient.Target, r engineclient.ExportRequest) error
}

// gatherVolume reads the volume that a data source exports, if it exports one.
func (r *Reconciler) gatherVolume(ctx context.Context, d *v1beta2.BackingImageDataSource, nodes []v1beta2.Node,
	s *seen) (err error) {
	x, volume := &s.Export, exportedVolume(d)
	if volume == "" {
		return nil
	}
	x.Volume, err = get(ctx, r.client, d.Namespace, volume, &v1beta2.Volume{})
	if err != nil || x.Volume == nil {
		return err
	}
	x.Snapshot, err = get(ctx, r.client, d.Namespace, snapshotName(d, x.Volume), &v1beta2.Snapshot{})
	if err != nil {
		return err
	}
	if x.Attachment, err = get(ctx, r.client, d.Namespace, volume, &v1beta2.VolumeAttachment{}); err != nil {
		return err
	}
	var engines v1beta2.EngineList
	var replicas v1beta2.ReplicaList
	for _, list := range []client.ObjectList{&engines, &replicas} {
		if err := r.client.List(ctx, list, client.InNamespace(d.Namespace), index.OfVolume(volume),
			client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list %T of volume %s: %w", list, volume, err)
		}
	}
	for i := range engines.Items {
		if e := &engines.Items[i]; x.Engine == nil || e.Spec.Active {
			x.Engine = e
		}
	}
	x.At = snapshot.PlaceOf(x.Volume, nodes, replicas.Items)
	x.Lacks = copies.Of(x.Volume, engines.Items, replicas.Items, nodes).Lacks()
	if x.Engine != nil {
		_, x.Reachable = engine.Target(x.Engine)
	}
	return nil
}

// gatherOrder has how the last order has ended.
func (r *Reconciler) gatherOrder(d *v1beta2.BackingImageDataSource, s *seen) {
	pod, x := s.Pod, &s.Export
	if pod == nil || exports(d) && (x.Engine == nil || x.Snapshot == nil) || clones(d) && s.Clone.From == "" ||
		restores(d) && s.Restore.Target == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.tried[d.Name]; t.pod == pod.UID {
		s.Tried = t.attempt
	}
}

// sendOrder has the content sent to the Pod, or the Pod fetch it.
type sendOrder struct{}

func (r *Reconciler) carry(ctx context.Context, d *v1beta2.BackingImageDataSource, s seen, _ any) error {
	r.note(d.Name, s.Pod.UID, r.fill(ctx, d, s))
	return nil
}

func (r *Reconciler) fill(ctx context.Context, d *v1beta2.BackingImageDataSource, s seen) (err error) {
	ip := s.Pod.Status.PodIP
	if restores(d) {
		return r.restore(ctx, ip, d, s.Restore)
	}
	var key []byte
	if recodes(d) {
		if key, err = r.keyOrder(ctx, d); err != nil {
			return err
		}
	}
	return r.send(ctx, ip, key, func(ctx context.Context, address, token string) error {
		if clones(d) {
			return r.sendImage(ctx, s.Clone.From, s.Clone.Image, address, token)
		}
		return r.sendSnapshot(ctx, s.Export.Engine, engineclient.ExportRequest{Snapshot: s.Export.Snapshot.Name,
			Address: address, Token: token,
			InOrder: d.Spec.Parameters[v1beta2.BackingImageParameterExportType] == v1beta2.BackingImageExportQCOW2})
	})
}

// note keeps how an order has ended: decide tells the refusal, and paces the next order.
func (r *Reconciler) note(name string, pod types.UID, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tried[name] = order{pod, attemptOf(time.Now(), err)}
}

// send asks the process at ip where it receives, which may need a key, and has something sent
// there.
func (r *Reconciler) send(ctx context.Context, ip string, key []byte, order func(ctx context.Context, address,
	token string) error) error {
	var to struct{ Address, Token string }
	if err := r.ask(ctx, http.MethodPost, ip, "/v1/file?action=receive", key, &to); err != nil {
		return err
	}
	return order(ctx, to.Address, to.Token)
}

// sendSnapshot orders an engine to send a snapshot.
func (r *Reconciler) sendSnapshot(ctx context.Context, e *v1beta2.Engine, q engineclient.ExportRequest) error {
	t, ok := engine.Target(e)
	if !ok {
		return fmt.Errorf("%w: the engine of volume %s is not running", engineclient.ErrUnavailable, e.Spec.VolumeName)
	}
	return r.cfg.Engines.SnapshotExport(ctx, t, q)
}
