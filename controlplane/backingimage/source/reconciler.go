// Package source is the controller of BackingImageDataSource objects. A data source makes the first
// file of a backing image on one disk: a Pod downloads it, waits for a user who uploads it, for the
// engine of a volume, which is ordered to send a snapshot, for a manager that has another image, or
// for the credentials of a store that has a backup. When the file is complete the backing image
// manager of the disk takes it over (package manager orders that), and the Pod goes. The object
// stays, as a record that the first file was made.
//
// The Pod is asked for its file while it runs. decide is pure; docs/design/backing-images.md has
// the decision table.
package source

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backingimage"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/node/instancemanager"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
)

const (
	// askTimeout bounds a question to a process.
	askTimeout = 5 * time.Second
	// mostAnswer bounds its answer, in bytes: a URL and a message are the longest parts.
	mostAnswer = 64 << 10
	// mostRefusal bounds what is told of a refusal.
	mostRefusal = 1 << 10
)

// Config of the reconciler.
type Config struct {
	Namespace string
	// NodeName is the leader's node, the owner of data sources.
	NodeName string
	// ServiceAccount runs the Pods.
	ServiceAccount string
	// Dial opens connections to their processes.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Plaintext says what a new process does without certificates; nil: nothing.
	Plaintext func(context.Context) (instancemanager.Plaintext, error)
	// Engines send the volumes that are exported; managers, which Connect reaches at host:port, the
	// images that are cloned.
	Engines Engines
	// Access reaches the stores of backups that are restored.
	Access  *store.Access
	Connect func(address string) (*grpc.ClientConn, error)
}

// Reconciler looks after data sources. Use New.
type Reconciler struct {
	cfg    Config
	client client.Client
	starts instancemanager.Starts
	http   *http.Client

	mu sync.Mutex
	// tried are the last orders to send, by the name of the data source.
	tried map[string]order
}

// order is an order to send to a Pod.
type order struct {
	pod types.UID
	attempt
}

// New returns the reconciler.
func New(cfg Config) *Reconciler {
	// A Pod's address may be another one's soon: no connection is kept.
	t := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, address string) (net.Conn,
		error) {
		return cfg.Dial(ctx, address)
	}}
	return &Reconciler{cfg: cfg, starts: instancemanager.NewStarts(time.Now), http: &http.Client{Transport: t},
		tried: map[string]order{}}
}

// SetupWithManager registers it; it runs on the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.client = mgr.GetClient()
	return loop.Setup(mgr, r.cfg.Namespace, r.Controller())
}

// WithClient gives the reconciler its client where there is no manager (tests).
func (r *Reconciler) WithClient(c client.Client) *Reconciler {
	r.client = c
	return r
}

// Controller describes the loop, for tests that step it by hand.
func (r *Reconciler) Controller() loop.Controller[*v1beta2.BackingImageDataSource, seen] {
	return loop.Controller[*v1beta2.BackingImageDataSource, seen]{
		Name:   naming.EventSource("backing-image-data-source"),
		New:    func() *v1beta2.BackingImageDataSource { return &v1beta2.BackingImageDataSource{} },
		Gather: r.gather,
		Carry:  r.carry,
		Decide: decide,
		Gone: func(_ context.Context, key client.ObjectKey) {
			r.starts.Forget(key)
			r.mu.Lock()
			delete(r.tried, key.Name)
			r.mu.Unlock()
		},
		Watches: []loop.Watch{
			loop.Watching(&corev1.Pod{}, loop.ByOwner[*corev1.Pod]("BackingImageDataSource")),
			loop.WatchingChanges(&v1beta2.Node{}, backingimage.DisksChanged, r.onNode),
			loop.Watching(&v1beta2.BackingImageManager{}, onManager),
			loop.Watching(&v1beta2.Volume{}, func(v *v1beta2.Volume) []string { return r.exporting(v.Name) }),
			loop.Watching(&v1beta2.Engine{}, func(e *v1beta2.Engine) []string { return r.exporting(e.Spec.VolumeName) }),
			loop.Watching(&v1beta2.VolumeAttachment{}, func(a *v1beta2.VolumeAttachment) []string {
				return r.exporting(a.Spec.Volume)
			}),
			loop.Watching(&v1beta2.BackingImage{}, func(b *v1beta2.BackingImage) []string {
				return r.names(func(d *v1beta2.BackingImageDataSource) bool { return clonedImage(d) == b.Name })
			}),
			loop.WatchingChanges(&v1beta2.BackupTarget{}, loop.Changed(func(t *v1beta2.BackupTarget) bool {
				return t.Status.Available
			}), func(t *v1beta2.BackupTarget) []string {
				return r.names(func(d *v1beta2.BackingImageDataSource) bool { return restoreTarget(d) == t.Name })
			}),
			loop.Watching(&v1beta2.Snapshot{}, func(s *v1beta2.Snapshot) []string { return r.exporting(s.Spec.Volume) }),
		},
	}
}

// exporting names the data sources that export a volume.
func (r *Reconciler) exporting(volume string) []string {
	return r.names(func(d *v1beta2.BackingImageDataSource) bool { return exportedVolume(d) == volume })
}

// onManager names the data sources of the images of a manager.
func onManager(m *v1beta2.BackingImageManager) (names []string) {
	for name := range m.Spec.BackingImages {
		names = append(names, name)
	}
	return names
}

func (r *Reconciler) onNode(n *v1beta2.Node) []string {
	return r.names(func(d *v1beta2.BackingImageDataSource) bool {
		return !d.Spec.FileTransferred && d.Spec.NodeID == n.Name
	})
}

func (r *Reconciler) names(of func(*v1beta2.BackingImageDataSource) bool) (names []string) {
	var list v1beta2.BackingImageDataSourceList
	err := r.client.List(context.Background(), &list, client.InNamespace(r.cfg.Namespace), client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil // the cache is stopping
	}
	for i := range list.Items {
		if of(&list.Items[i]) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

func (r *Reconciler) gather(ctx context.Context, d *v1beta2.BackingImageDataSource) (seen, error) {
	s := seen{Owner: r.cfg.NodeName}
	var nodes v1beta2.NodeList
	if err := r.client.List(ctx, &nodes, client.InNamespace(d.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return s, fmt.Errorf("list nodes: %w", err)
	}
	if disk, ok := backingimage.Disks(nodes.Items)[d.Spec.DiskUUID]; ok {
		s.Disk = &disk
	}
	values, err := stored.Read(ctx, r.client, d.Namespace)
	if err != nil {
		return s, err
	}
	s.Image = values.String(setting.DefaultBackingImageManagerImage)
	s.Settings = instancemanager.SettingsFrom(values, r.cfg.ServiceAccount)
	s.Restore.BytesPerSecond = store.BytesPerSecond(values)
	m := &v1beta2.BackingImageManager{}
	name := naming.BackingImageManagerName(s.Image, d.Spec.DiskUUID)
	if s.Manager, err = get(ctx, r.client, d.Namespace, name, m); err != nil {
		return s, err
	}
	if err := r.gatherVolume(ctx, d, nodes.Items, &s); err != nil {
		return s, err
	}
	if err := r.gatherImage(ctx, d, &s); err != nil {
		return s, err
	}
	if err := r.gatherTarget(ctx, d, &s); err != nil {
		return s, err
	}
	if err := r.gatherPod(ctx, d, &s); err != nil {
		return s, err
	}
	r.gatherOrder(d, &s)
	return s, nil
}

func (r *Reconciler) gatherPod(ctx context.Context, d *v1beta2.BackingImageDataSource, s *seen) error {
	var err error
	name := naming.BackingImageDataSourcePodName(d.Name)
	if s.Pod, err = get(ctx, r.client, d.Namespace, name, &corev1.Pod{}); err != nil {
		return err
	}
	s.StartNotBefore = r.starts.Observe(client.ObjectKeyFromObject(d), s.Pod)
	switch {
	case d.Spec.FileTransferred || d.DeletionTimestamp != nil:
	case s.Pod == nil && r.cfg.Plaintext != nil:
		s.Plaintext, err = r.cfg.Plaintext(ctx)
	case s.Pod != nil && s.Pod.DeletionTimestamp == nil && instancemanager.PodReady(s.Pod):
		f := &file{}
		if failed := r.ask(ctx, http.MethodGet, s.Pod.Status.PodIP, "/v1/file", nil, f); failed != nil {
			slog.Info("a data source does not answer, asking again", "backingImage", d.Name, "err", failed)
		} else {
			s.File = f
		}
	}
	return err
}

// ask asks the process at ip, and reads its answer unless into is nil.
func (r *Reconciler) ask(ctx context.Context, method, ip, path string, body []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	url := "http://" + net.JoinHostPort(ip, strconv.Itoa(naming.PortBackingImage)) + path
	q, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	a, err := r.http.Do(q)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(a.Body, mostRefusal)) // what is missing says nothing
		return fmt.Errorf("%s %s: %s: %s", method, url, a.Status, bytes.TrimSpace(text))
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(a.Body, mostAnswer)).Decode(into); err != nil {
		return fmt.Errorf("%s %s: %w", method, url, err)
	}
	return nil
}

// get reads an object, nil if there is none of that name.
func get[T client.Object](ctx context.Context, r client.Reader, namespace, name string, into T) (T, error) {
	var none T
	err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("read %T %s: %w", into, name, err)
	}
	return into, nil
}
