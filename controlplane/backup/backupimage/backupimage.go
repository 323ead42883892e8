// Package backupimage is the controller of BackupBackingImage objects. Such an object is the
// backup of a backing image, kept by a backup target outside of the cluster; a target has one of
// each name.
//
// An object that a user has made orders a backup: a backing image manager that has the image reads
// it. Any other stands for a backup that the store has (package backuptarget makes it): it is read,
// once. Deleting an object deletes the backup in the store, unless label
// longhorn.io/delete-custom-resource-only says otherwise.
//
// A backup that is complete is verified when that is asked for or due (package verification). What
// is damaged then is written again by a manager that has the image.
//
// decide is pure; docs/design/backups.md has the states and the decision table.
package backupimage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/rpc/bimrpc"
	"ankole.storage/controlplane/backingimage"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/backup/verification"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
)

// askTimeout bounds a question to a backing image manager.
const askTimeout = 10 * time.Second

// Config of the reconciler.
type Config struct {
	// NodeName is the leader's node, the owner of backups.
	NodeName string
	// Access reaches stores, Connect backing image managers at host:port.
	Access *store.Access
	// Parts verifies backups.
	Parts   *verification.Parts
	Connect func(address string) (*grpc.ClientConn, error)
}

// outcome is what an errand has found: a backup in the store, or how far a manager is.
type outcome struct {
	Info     *engineclient.BackupImage
	Progress *bimrpc.BackupStatusResponse
}

// Reconciler looks after backups of backing images. Use New.
type Reconciler struct {
	cfg     Config
	client  client.Client
	errands *store.Errands[outcome]

	mu sync.Mutex
	// lost counts the managers that have ended before they had completed a backup, by its name.
	lost map[string]lost
}

// lost is of one object: another one of its name is not it.
type lost struct {
	of    types.UID
	times int
}

// New returns the reconciler.
func New(cfg Config) *Reconciler {
	r := &Reconciler{cfg: cfg, errands: store.NewErrands[outcome](), lost: map[string]lost{}}
	cfg.Parts.OnEnd(kind, r.errands.Wake)
	return r
}

// SetupWithManager registers it; it runs on the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.client = mgr.GetClient()
	if err := mgr.Add(r.errands); err != nil {
		return fmt.Errorf("add the errands of backups of backing images: %w", err)
	}
	return loop.Setup(mgr, r.cfg.Access.Namespace, r.Controller())
}

// Controller describes the loop, for tests that step it by hand.
func (r *Reconciler) Controller() loop.Controller[*v1beta2.BackupBackingImage, seen] {
	return loop.Controller[*v1beta2.BackupBackingImage, seen]{
		Name:   naming.EventSource("backup-backing-image"),
		New:    func() *v1beta2.BackupBackingImage { return &v1beta2.BackupBackingImage{} },
		Gather: r.gather,
		Carry:  r.carry,
		Decide: decide,
		Gone:   func(_ context.Context, key client.ObjectKey) { r.forget(key.Name) },
		Watches: []loop.Watch{
			loop.Watching(&v1beta2.BackingImage{}, func(i *v1beta2.BackingImage) []string {
				return r.names(func(b *v1beta2.BackupBackingImage) bool { return b.Spec.BackingImage == i.Name && !settled(b) })
			}),
			loop.Watching(&v1beta2.BackingImageManager{}, func(m *v1beta2.BackingImageManager) []string {
				return r.names(func(b *v1beta2.BackupBackingImage) bool {
					_, has := m.Status.BackingImageFileMap[b.Spec.BackingImage]
					return has && !settled(b)
				})
			}),
			loop.WatchingChanges(&v1beta2.BackupTarget{}, loop.Changed(func(t *v1beta2.BackupTarget) bool {
				return t.Status.Available
			}), func(t *v1beta2.BackupTarget) []string {
				return r.names(func(b *v1beta2.BackupBackingImage) bool {
					return b.Spec.BackupTargetName == t.Name && !settled(b)
				})
			}),
			loop.Watching(&v1beta2.Setting{}, func(s *v1beta2.Setting) []string {
				return r.names(func(*v1beta2.BackupBackingImage) bool { return s.Name == setting.BackupVerifyInterval })
			}),
		},
		Wakeups: loop.By(r.errands.Wakeups()),
	}
}

// forget forgets a backup that is gone.
func (r *Reconciler) forget(name string) {
	r.errands.Forget(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.lost, name)
}

// settled says whether nothing is to be done for a backup until somebody asks.
func settled(b *v1beta2.BackupBackingImage) bool {
	return b.DeletionTimestamp == nil &&
		(b.Status.State == v1beta2.BackupStateCompleted || b.Status.State == v1beta2.BackupStateError)
}

func (r *Reconciler) names(ok func(*v1beta2.BackupBackingImage) bool) (out []string) {
	var list v1beta2.BackupBackingImageList
	err := r.client.List(context.Background(), &list, client.InNamespace(r.cfg.Access.Namespace),
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil // the cache does not fail; an object's own change wakes it too
	}
	for i := range list.Items {
		if ok(&list.Items[i]) {
			out = append(out, list.Items[i].Name)
		}
	}
	return out
}

// seen is what decide looks at besides the backup.
type seen struct {
	// Target and Image are nil if there is none.
	Target *v1beta2.BackupTarget
	Image  *v1beta2.BackingImage
	// From is the address of a manager that has the image ready, and may mount the target if that is a
	// share; empty: none has. Unable then names one that only may not mount it.
	From, Unable string
	// Ended: the manager that was ordered serves no more. Lost is how many have ended so.
	Ended    bool
	Lost     int
	Owner    string
	Settings setting.Values
	// Errand is the latest one.
	Errand store.Errand[outcome]
	// Verification is what its verification looks at.
	Verification verification.Seen
}

// Orders: again counts one more manager that was lost, verify begins the next part of a
// verification. The others are errands: create orders the
// backup of From, follow asks the manager of the object's status, inspect and remove ask the store.
const (
	orderAgain   = "again"
	orderCreate  = "create"
	orderFollow  = "follow"
	orderInspect = "inspect"
	orderRemove  = "remove"
	orderVerify  = "verify"
)

func (r *Reconciler) gather(ctx context.Context, b *v1beta2.BackupBackingImage) (seen, error) {
	s := seen{Owner: r.cfg.NodeName, Errand: r.errands.Of(b.Name)}
	var err error
	if s.Target, err = r.cfg.Access.Target(ctx, b.Spec.BackupTargetName); err != nil {
		return s, err
	}
	if b.Spec.UserCreated {
		if err := r.gatherImage(ctx, b, &s); err != nil {
			return s, err
		}
	}
	s.Settings, err = stored.Read(ctx, r.client, b.Namespace)
	s.Verification = r.cfg.Parts.Seen(b.Spec.BackupTargetName, s.Settings)
	return s, err
}

// gatherImage reads the image, and finds a manager that has it.
func (r *Reconciler) gatherImage(ctx context.Context, b *v1beta2.BackupBackingImage, s *seen) error {
	r.mu.Lock()
	before := r.lost[b.Name]
	r.mu.Unlock()
	if before.of == b.UID {
		s.Lost = before.times
	}
	var managers v1beta2.BackingImageManagerList
	if err := r.client.List(ctx, &managers, client.InNamespace(b.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list backing image managers: %w", err)
	}
	s.Ended = ended(managers.Items, b)
	i := &v1beta2.BackingImage{}
	key := client.ObjectKey{Namespace: b.Namespace, Name: b.Spec.BackingImage}
	err := r.client.Get(ctx, key, i, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get backing image %s: %w", key.Name, err)
	}
	s.Image = i
	if s.Target == nil || !store.Mounted(s.Target) {
		s.From, _ = backingimage.Sender(managers.Items, i)
		return nil
	}
	return r.gatherMounting(ctx, managers.Items, s)
}

// gatherMounting finds a manager that has the image and may mount a share.
func (r *Reconciler) gatherMounting(ctx context.Context, managers []v1beta2.BackingImageManager, s *seen) error {
	var able, unable []v1beta2.BackingImageManager
	for i := range managers {
		m, pod := &managers[i], &corev1.Pod{}
		err := r.client.Get(ctx, client.ObjectKeyFromObject(m), pod, client.UnsafeDisableDeepCopy)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("get Pod %s: %w", m.Name, err)
		case err == nil && backingimage.MayMount(pod):
			able = append(able, *m)
		default:
			unable = append(unable, *m)
		}
	}
	if s.From, _ = backingimage.Sender(able, s.Image); s.From == "" {
		_, s.Unable = backingimage.Sender(unable, s.Image)
	}
	return nil
}

// ended says whether the manager that was ordered to make a backup serves no more, as far as is
// known: one of a node that is cut off may be at it.
func ended(managers []v1beta2.BackingImageManager, b *v1beta2.BackupBackingImage) bool {
	for i := range managers {
		st := &managers[i].Status
		_, has := st.BackingImageFileMap[b.Spec.BackingImage]
		if has && st.CurrentState == v1beta2.BackingImageManagerStateUnknown ||
			st.IP != "" && backingimage.Address(st.IP) == b.Status.ManagerAddress {
			return false
		}
	}
	return b.Status.ManagerAddress != ""
}

// carry counts a manager that was lost, or begins an errand.
func (r *Reconciler) carry(_ context.Context, b *v1beta2.BackupBackingImage, s seen, what any) error {
	order := what.(string)
	if order == orderAgain {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lost[b.Name] = lost{b.UID, s.Lost + 1}
		return nil
	}
	if order == orderVerify {
		r.cfg.Parts.Begin(subject(b), r.cfg.Access, s.Target, s.Settings)
		return nil
	}
	b = b.DeepCopy() // the errand outlives the step
	r.errands.Begin(b.Name, named(b, order), func(ctx context.Context) (out outcome, err error) {
		switch order {
		case orderCreate:
			credentials, err := r.cfg.Access.Credentials(ctx, s.Target)
			if err != nil {
				return out, err
			}
			return out, r.call(ctx, b.Status.ManagerAddress, func(ctx context.Context,
				c bimrpc.BackingImageManagerServiceClient) error {
				_, err := c.BackupCreate(ctx, requestOf(b, s.Image, s.Target, credentials, s.Settings))
				return err
			})
		case orderFollow:
			err = r.call(ctx, b.Status.ManagerAddress, func(ctx context.Context,
				c bimrpc.BackingImageManagerServiceClient) (err error) {
				out.Progress, err = c.BackupStatus(ctx, &bimrpc.BackupStatusRequest{Name: b.Spec.BackingImage})
				return err
			})
			return out, err
		}
		return r.inStore(ctx, b, s, order)
	})
	return nil
}

// inStore carries out what a store is asked.
func (r *Reconciler) inStore(ctx context.Context, b *v1beta2.BackupBackingImage, s seen, order string) (out outcome,
	err error) {
	url, err := store.ImageURL(s.Target.Spec.BackupTargetURL, b.Spec.BackingImage)
	if err != nil {
		return out, err
	}
	st, err := r.cfg.Access.Open(ctx, s.Target)
	if err != nil {
		return out, err
	}
	if order == orderInspect {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(s.Settings.Int(setting.BackupExecutionTimeout))*time.Minute)
		defer cancel()
		out.Info, err = st.BackupImageGet(ctx, url, st.Credentials)
		return out, err
	}
	if err = st.BackupImageDelete(ctx, url, st.Credentials); errors.Is(err, engineclient.ErrNotFound) {
		err = nil
	}
	return out, err
}

// requestOf is the order of a backup, as its image and the settings say.
func requestOf(b *v1beta2.BackupBackingImage, i *v1beta2.BackingImage, t *v1beta2.BackupTarget,
	credentials map[string]string, settings setting.Values) *bimrpc.BackupCreateRequest {
	q := &bimrpc.BackupCreateRequest{Name: i.Name, Uuid: i.Status.UUID, Checksum: i.Status.Checksum,
		BackupTarget: t.Spec.BackupTargetURL, Credential: credentials,
		CompressionMethod: store.Method(settings.String(setting.BackupCompressionMethod), credentials),
		ConcurrentLimit:   int32(settings.Int(setting.BackupConcurrentLimit)),
		Parameters: map[string]string{v1beta2.BackingImageParameterSecret: i.Spec.Secret,
			v1beta2.BackingImageParameterSecretNamespace: i.Spec.SecretNamespace}}
	if rate := store.BytesPerSecond(settings); rate > 0 {
		q.Parameters[v1beta2.BackingImageParameterNodeBandwidth] = strconv.FormatInt(rate, 10)
	}
	for _, key := range slices.Sorted(maps.Keys(b.Spec.Labels)) {
		q.Labels = append(q.Labels, key+"="+b.Spec.Labels[key])
	}
	return q
}

// call asks a backing image manager.
func (r *Reconciler) call(ctx context.Context, address string,
	do func(ctx context.Context, c bimrpc.BackingImageManagerServiceClient) error) error {
	conn, err := r.cfg.Connect(address)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	err = do(ctx, bimrpc.NewBackingImageManagerServiceClient(conn))
	if err == nil {
		return nil
	}
	kind := engineclient.ErrUnavailable
	switch status.Code(err) {
	case codes.InvalidArgument:
		kind = engineclient.ErrInvalid
	case codes.NotFound:
		kind = engineclient.ErrNotFound
	}
	return fmt.Errorf("backing image manager at %s: %w: %s", address, kind, status.Convert(err).Message())
}
