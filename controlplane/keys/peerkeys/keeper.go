// Package peerkeys makes and renews the Secrets by which controllers and instance managers know
// each other (package mtls), unless a user has made one.
//
// The leader does so. The certificate of nodes is in Secret longhorn-grpc-tls, which is mounted
// into the Pods of instance managers; that of controllers in longhorn-grpc-control, mounted into
// theirs alone; the authority's key in longhorn-grpc-ca, which is mounted nowhere. What a user puts
// into longhorn-grpc-tls is copied to longhorn-grpc-control.
//
// Nobody loses contact. The Secrets are made when all managers look for them: these read them by
// the API server where they have no file yet, so that an instance manager that has the file already
// finds no manager without. What is renewed later works with what it replaces: a certificate by the
// same authority, and an authority after a time in which everybody has come to trust both.
package peerkeys

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/controlplane/keys/certificate"
	"ankole.storage/controlplane/object/firstseen"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/host/mtls"
)

// FlagMutualTLS is the managers' flag that has them look for the Secret, and make it.
const FlagMutualTLS = "mutual-tls"

const (
	// lookEvery is how often what is there is looked at when nothing tells of a change: certificates
	// grow old. waitEvery, while it is not there; and between two watches.
	lookEvery = time.Minute
	waitEvery = 5 * time.Second

	// Keys of the authority's Secret beside those of its certificate.
	nextCert, nextKey, formerCert = "next.crt", "next.key", "former.crt"

	authoritiesFile = "ca.crt"
	// annotationSince is on the peers' Secret: since when that is trusted which it says.
	annotationSince = naming.LabelPrefix + "authorities-since"
)

// Keeper looks after the Secrets.
type Keeper struct {
	// Client reads and writes past every cache.
	Client    client.WithWatch
	Namespace string
	// Make has the Secret made where there is none. One that was made is renewed in any case.
	Make bool
	// Wanted, if it is not nil, has the Secrets looked at without delay: somebody waits for one.
	Wanted <-chan struct{}

	now func() time.Time
	// changed is since when this process has seen the present authorities.
	changed *firstseen.Stamps
	// waiting is what was said last of why the Secret is not made yet.
	waiting string
}

// Start looks after the Secrets until ctx ends.
func (k *Keeper) Start(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { k.watch(ctx, changed) })
	for {
		present, err := k.look(ctx)
		if err != nil && ctx.Err() == nil {
			slog.Warn("the secret of managers and instance managers is not looked after, trying again", "err", err)
		}
		wait := lookEvery
		if err != nil || k.Make && !present {
			wait = waitEvery
		}
		pause := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil
		case <-k.Wanted:
			pause.Stop()
		case <-changed:
			pause.Stop()
		case <-pause.C:
		}
	}
}

// watch gives notice when the Secret of nodes changes, until ctx ends: nodes that have a
// certificate take no orders from controllers that have none of the same authority. It is deleted
// too, and instance managers that start then answer nobody before there is another one.
func (k *Keeper) watch(ctx context.Context, changed chan<- struct{}) {
	for ctx.Err() == nil {
		w, err := k.Client.Watch(ctx, &corev1.SecretList{}, client.InNamespace(k.Namespace),
			client.MatchingFields{"metadata.name": naming.SecretGRPCTLS})
		if err != nil && ctx.Err() == nil {
			slog.Warn("the secret of managers and instance managers is not watched, trying again", "err", err)
		}
		if err == nil {
			pass(ctx, w, changed)
		}
		select {
		case <-ctx.Done():
		case <-time.After(waitEvery):
		}
	}
}

// pass gives notice of what w tells, until that ends or ctx does.
func pass(ctx context.Context, w watch.Interface, changed chan<- struct{}) {
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-w.ResultChan():
			if !ok {
				return
			}
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}

// look does the next thing that is to be done, and tells whether there is a Secret.
func (k *Keeper) look(ctx context.Context) (present bool, err error) {
	now := time.Now
	if k.now != nil {
		now = k.now
	}
	peers, there, err := k.secret(ctx, naming.SecretGRPCTLS)
	if err != nil {
		return there, err
	}
	control, _, err := k.secret(ctx, naming.SecretGRPCControl)
	if err != nil {
		return there, err
	}
	if there && peers.Labels[naming.LabelManagedBy] != naming.ManagedByManager {
		control.Data = map[string][]byte{}
		for _, name := range []string{authoritiesFile, corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
			control.Data[name] = peers.Data[name]
		}
		return true, k.write(ctx, control) // a user's is the user's business
	}
	if !there {
		if everywhere, err := k.everywhere(ctx); err != nil || !k.Make || !everywhere {
			return false, err
		}
	}
	authority, _, err := k.secret(ctx, naming.SecretGRPCCA)
	if err != nil {
		return there, err
	}
	s := decode(authority, peers, control)
	if !there && len(s.next.Cert)+len(s.former) > 0 {
		s.since = now()
	}
	if k.changed == nil {
		k.changed = firstseen.New()
	}
	s.seen = k.changed.At(now(), "", peers.Annotations[annotationSince])
	// A change of authorities counts from when peers are told of it, so the one before must have
	// been written.
	if !there || bytes.Equal(s.trusted(), peers.Data[authoritiesFile]) {
		if s, err = s.advance(now()); err != nil {
			return there, err
		}
	} else {
		s.since = now()
	}
	s.encode(authority, peers, control)
	k.changed.At(now(), "", peers.Annotations[annotationSince])
	// The authority first: no certificate without it. Who gives orders next: nodes that have a
	// certificate take none from others.
	for _, secret := range []*stored{authority, control} {
		if err := k.write(ctx, secret); err != nil {
			return there, err
		}
	}
	return true, k.write(ctx, peers)
}

// everywhere tells whether every manager finds the Secret by itself: another one would have to wait
// for its node to have it.
func (k *Keeper) everywhere(ctx context.Context) (bool, error) {
	images, err := Without(ctx, k.Client, k.Namespace)
	if err != nil {
		return false, err
	}
	waiting := strings.Join(images, ", ")
	if waiting != "" && k.Make && waiting != k.waiting {
		slog.Info("the Secret of managers and instance managers is made when all managers look for it", "do not", waiting)
	}
	k.waiting = waiting
	return waiting == "", nil
}

// Without returns the images of managers that do not look for the Secret by themselves, without
// repetition: those of older versions, and controllers that were not told to (FlagMutualTLS). A
// manager that has ended, or whose node is lost, speaks to nobody, and neither do agents.
func Without(ctx context.Context, c client.Reader, namespace string) (images []string, err error) {
	var pods corev1.PodList
	which, err := labels.Parse(naming.LabelApp + " in (" + naming.AppManager + "," + naming.AppController + ")," +
		naming.LabelComponent + "!=" + naming.ComponentManager)
	if err != nil {
		return nil, err
	}
	err = c.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: which})
	if err != nil {
		return nil, fmt.Errorf("list managers: %w", err)
	}
	for _, p := range pods.Items {
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if ended || len(p.Spec.Containers) == 0 || looks(&p.Spec.Containers[0]) {
			continue
		}
		lost, err := nodeLost(ctx, c, p.Spec.NodeName)
		if err != nil {
			return nil, err
		}
		if !lost {
			images = append(images, p.Spec.Containers[0].Image)
		}
	}
	slices.Sort(images)
	return slices.Compact(images), nil
}

// looks tells whether a manager's container is told to look for the Secret.
func looks(c *corev1.Container) bool {
	flag := "--" + FlagMutualTLS
	return slices.Contains(c.Command, flag) || slices.Contains(c.Args, flag)
}

// nodeLost tells whether Kubernetes has lost contact with a node, or it is gone.
func nodeLost(ctx context.Context, c client.Reader, name string) (bool, error) {
	node := &corev1.Node{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, fmt.Errorf("read node %s: %w", name, err)
	}
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
	}), nil
}

// stored is a Secret and what it was when it was read.
type stored struct {
	corev1.Secret
	before *corev1.Secret
}

func (k *Keeper) secret(ctx context.Context, name string) (s *stored, there bool, err error) {
	s = &stored{}
	err = k.Client.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: name}, &s.Secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, false, fmt.Errorf("read Secret %s: %w", name, err)
	}
	if err == nil {
		s.before = s.DeepCopy()
		return s, true, nil
	}
	s.Secret = corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: name,
		Labels: map[string]string{naming.LabelManagedBy: naming.ManagedByManager}}}
	return s, false, nil
}

// write stores a Secret where it has changed, if nobody else has changed it since.
func (k *Keeper) write(ctx context.Context, s *stored) error {
	if s.before == nil {
		s.Type = corev1.SecretTypeTLS
		if err := k.Client.Create(ctx, &s.Secret); err != nil {
			return fmt.Errorf("make Secret %s: %w", s.Name, err)
		}
		slog.Info("made the Secret of managers and instance managers", "secret", s.Name)
		return nil
	}
	same := len(s.Data) == len(s.before.Data) && s.Annotations[annotationSince] == s.before.Annotations[annotationSince]
	for name, data := range s.Data {
		same = same && bytes.Equal(data, s.before.Data[name])
	}
	if same {
		return nil
	}
	if s.before.Labels[naming.LabelManagedBy] != naming.ManagedByManager {
		return fmt.Errorf("the Secret %s was made by somebody else, and is in the way of the system's: delete it", s.Name)
	}
	if err := k.Client.Update(ctx, &s.Secret); err != nil {
		return fmt.Errorf("renew Secret %s: %w", s.Name, err)
	}
	slog.Info("renewed the Secret of managers and instance managers", "secret", s.Name)
	return nil
}

// decode reads the state. Where the authority's key is lost its certificate is trusted on.
func decode(authority, peers, control *stored) state {
	s := state{
		authority: certificate.Pair{Cert: authority.Data[corev1.TLSCertKey], Key: authority.Data[corev1.TLSPrivateKeyKey]},
		next:      certificate.Pair{Cert: authority.Data[nextCert], Key: authority.Data[nextKey]},
		former:    authority.Data[formerCert],
		peer:      certificate.Pair{Cert: peers.Data[corev1.TLSCertKey], Key: peers.Data[corev1.TLSPrivateKeyKey]},
		control:   certificate.Pair{Cert: control.Data[corev1.TLSCertKey], Key: control.Data[corev1.TLSPrivateKeyKey]},
	}
	if authority.before == nil {
		s.authority.Cert = peers.Data[authoritiesFile]
	}
	s.since, _ = time.Parse(time.RFC3339, peers.Annotations[annotationSince]) // none is long ago
	return s
}

// encode puts the state into the Secrets.
func (s state) encode(authority, peers, control *stored) {
	authority.Data = map[string][]byte{corev1.TLSCertKey: s.authority.Cert, corev1.TLSPrivateKeyKey: s.authority.Key}
	for name, data := range map[string][]byte{nextCert: s.next.Cert, nextKey: s.next.Key, formerCert: s.former} {
		if len(data) > 0 {
			authority.Data[name] = data
		}
	}
	for secret, pair := range map[*stored]certificate.Pair{peers: s.peer, control: s.control} {
		secret.Data = map[string][]byte{authoritiesFile: s.trusted(), corev1.TLSCertKey: pair.Cert,
			corev1.TLSPrivateKeyKey: pair.Key}
	}
	delete(peers.Annotations, annotationSince)
	if !s.since.IsZero() {
		metav1.SetMetaDataAnnotation(&peers.ObjectMeta, annotationSince, s.since.UTC().Format(time.RFC3339))
	}
}

// Read returns a function that gets the first of these Secrets which is there from the API server.
func Read(c client.Client, namespace string, names ...string) mtls.Fetch {
	return func(ctx context.Context) (authorities, cert, key []byte, err error) {
		for _, name := range names {
			s := &corev1.Secret{}
			err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, s)
			if client.IgnoreNotFound(err) != nil {
				return nil, nil, nil, err
			}
			if err == nil {
				return s.Data[authoritiesFile], s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey], nil
			}
		}
		return nil, nil, nil, nil
	}
}
