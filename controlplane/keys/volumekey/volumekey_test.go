package volumekey

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

const ns = "longhorn-system"

// rig is a cluster with a clock.
type rig struct {
	t    *testing.T
	c    client.WithWatch
	now  time.Time
	used map[string]bool
}

func newRig(t *testing.T) *rig {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1beta2.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, c: fake.NewClientBuilder().WithScheme(scheme).Build(), used: map[string]bool{},
		now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
}

// leader is a process that begins to lead.
func (r *rig) leader() *Keys {
	r.t.Helper()
	k := &Keys{Client: r.c, Namespace: ns, Now: func() time.Time { return r.now },
		Used: func(context.Context) (map[string]bool, error) { return maps.Clone(r.used), nil }}
	r.look(k)
	return k
}

func (r *rig) look(k *Keys) {
	r.t.Helper()
	if err := k.Load(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) secret() *corev1.Secret {
	r.t.Helper()
	s := &corev1.Secret{}
	if err := r.c.Get(r.t.Context(), client.ObjectKey{Namespace: ns, Name: naming.SecretVolumeKeys}, s); err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *rig) edit(change func(s *corev1.Secret)) {
	r.t.Helper()
	s := r.secret()
	change(s)
	if err := r.c.Update(r.t.Context(), s); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) names() []string { return slices.Sorted(maps.Keys(r.secret().Data)) }

func (r *rig) want(what string, names ...string) {
	r.t.Helper()
	if got := r.names(); !slices.Equal(got, names) {
		r.t.Errorf("%s: the Secret has %v, want %v", what, got, names)
	}
}

func volume(uid, key string) *v1beta2.Volume {
	v := &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "v", UID: types.UID(uid)}}
	v.Status.ProcessKey = key
	return v
}

const first, second = "20260301T120000Z", "20270301T120000Z"

// TestDerive holds the derivation to a value that another program has computed:
// printf 'ankole volume 1 u' | openssl dgst -sha256 -mac HMAC -macopt hexkey:000102…1f.
func TestDerive(t *testing.T) {
	const master = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	const want = "ce45085ebd86f16f7b213c0a88a10daa4db06646bca9f036aeb8da5f8da34f6f"
	if got := Derive(master, "u"); got != want {
		t.Errorf("derived %s, want %s", got, want)
	}
}

// TestSecretsOfVolumes: they differ by master key and by UID, and an unknown key yields none.
func TestSecretsOfVolumes(t *testing.T) {
	r := newRig(t)
	k := r.leader()
	r.now = r.now.Add(life)
	r.used[first] = true
	r.look(k)
	seen := map[string]bool{}
	for _, v := range []*v1beta2.Volume{volume("a", first), volume("b", first), volume("a", second)} {
		s, err := k.Of(v)
		if err != nil || len(s) != 64 || seen[s] {
			t.Errorf("secret %q, %v", s, err)
		}
		seen[s] = true
		if err := r.c.Create(t.Context(), v); err != nil && !strings.Contains(err.Error(), "exists") {
			t.Fatal(err)
		}
	}
	s, err := k.Of(volume("a", "none"))
	if !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "longhorn-volume-keys") {
		t.Errorf("secret %q, %v", s, err)
	}
	if s, err := k.Named(t.Context(), r.c, "v"); err != nil || !seen[s] {
		t.Errorf("secret %q, %v", s, err)
	}
}

// TestLife: made, read by the next leader, replaced after a year or when somebody asks for it, and
// removed when no volume uses it any more.
func TestLife(t *testing.T) {
	r := newRig(t)
	k := r.leader()
	r.want("made", first)
	next := r.leader()
	a, errA := k.Of(volume("a", first))
	b, errB := next.Of(volume("a", first))
	if a != b || errA != nil || errB != nil {
		t.Errorf("two leaders have %q, %v and %q, %v", a, errA, b, errB)
	}
	r.used[first] = true
	r.now = r.now.Add(life - time.Second)
	r.look(next)
	r.want("a second before its time", first)
	r.now = r.now.Add(time.Second)
	r.look(next)
	r.want("after a year", first, second)
	if next.Newest() != second || !next.Has(first) {
		t.Errorf("the newest is %s", next.Newest())
	}
	r.look(next)
	r.want("a volume uses it", first, second)
	r.edit(func(s *corev1.Secret) { metav1.SetMetaDataAnnotation(&s.ObjectMeta, AnnotationRotate, "") })
	r.look(next) // in the second in which the last one was made
	third := "20270301T120001Z"
	r.want("asked for", first, second, third)
	if s := r.secret(); len(s.Annotations) > 0 {
		t.Errorf("it is asked for again: %v", s.Annotations)
	}
	r.used = map[string]bool{second: true}
	r.look(next)
	r.want("not used", second, third)
	r.used = map[string]bool{}
	r.look(next)
	r.want("none used", third)
	r.now = r.now.Add(-time.Hour)
	r.edit(func(s *corev1.Secret) { metav1.SetMetaDataAnnotation(&s.ObjectMeta, AnnotationRotate, "") })
	r.used[third] = true
	r.look(next)
	r.want("asked for, and the clock was put back", third, "20270301T120002Z")
}

// TestMeddling: what a leader knows is put back, and what is no key is removed.
func TestMeddling(t *testing.T) {
	r := newRig(t)
	k := r.leader()
	r.used[first] = true
	mine, _ := k.Of(volume("a", first))
	if err := r.c.Delete(t.Context(), r.secret()); err != nil {
		t.Fatal(err)
	}
	r.look(k)
	r.want("deleted", first)
	other := strings.Repeat("ab", 32)
	r.edit(func(s *corev1.Secret) {
		s.Data = map[string][]byte{first: []byte(other), "password": []byte(other), second: []byte("short"),
			"20250101T000000Z": []byte(other)}
	})
	r.used["20250101T000000Z"] = true
	r.look(k)
	r.want("changed", "20250101T000000Z", first)
	if got, err := r.leader().Of(volume("a", first)); err != nil || got != mine {
		t.Errorf("the next leader has %q, %v; want %q", got, err, mine)
	}
	if got, err := k.Of(volume("a", "20250101T000000Z")); err != nil || got != Derive(other, "a") {
		t.Errorf("a key that was put there yields %q, %v", got, err)
	}
	// Nobody knows it any more.
	if err := r.c.Delete(t.Context(), r.secret()); err != nil {
		t.Fatal(err)
	}
	r.now = r.now.Add(time.Minute)
	if next := r.leader(); next.Has(first) || next.Newest() != "20260301T120100Z" {
		t.Errorf("a leader that knows none makes %q", next.Newest())
	}
}

// TestUnwrittenKeyIsNotUsed: a key that could not be stored yields nothing.
func TestUnwrittenKeyIsNotUsed(t *testing.T) {
	r := newRig(t)
	broken := errors.New("etcd is full")
	c := interceptor.NewClient(r.c, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return broken }})
	k := &Keys{Client: c, Namespace: ns}
	if err := k.Load(t.Context()); !errors.Is(err, broken) || k.Newest() != "" {
		t.Errorf("%v, and the newest is %q", err, k.Newest())
	}
}

// TestUsedBy: the volumes say which keys are used.
func TestUsedBy(t *testing.T) {
	r := newRig(t)
	a, b := volume("a", first), volume("b", second)
	b.Name = "w"
	for _, v := range []*v1beta2.Volume{a, b} {
		if err := r.c.Create(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
	used, err := UsedBy(r.c, ns)(t.Context())
	if err != nil || len(used) != 2 || !used[first] || !used[second] {
		t.Errorf("used are %v, %v", used, err)
	}
}
