package serve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
	"ankole.storage/rest"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/resttest"
	"ankole.storage/rest/serve"
	"ankole.storage/test/seeded"
	"ankole.storage/test/wait"
)

// freshVolumes is the list of volumes that the reader has, made anew without any cache, for a
// caller whose URLs begin with base.
func (f *fixture) freshVolumes(base, self string) []byte { return f.fresh(f.Config.Reader, base, self) }

// fresh is the list of volumes that another reader has: each volume is asked for by itself.
func (f *fixture) fresh(from client.Reader, base, self string) []byte {
	f.T.Helper()
	s, err := rest.New(rest.Config{Config: serve.Config{Client: f.Client, Live: from, Reader: from, Open: true}})
	apitest.Must(f.T, err)
	get := apitest.Routes(s.Table())["/v1/volumes/{name}"].Methods[http.MethodGet]
	q := serve.NewRequest(f.T.Context(), s, base, self)
	var volumes lh.VolumeList
	apitest.Must(f.T, from.List(f.T.Context(), &volumes))
	serve.SortByName(volumes.Items)
	var views []*resource.Volume
	for _, v := range volumes.Items {
		q.Params = map[string]string{"name": v.Name}
		answer, err := get(q)
		if apierrors.IsNotFound(err) {
			continue // it has gone in between
		}
		apitest.Must(f.T, err)
		view := answer.(*resource.Volume)
		view.ResourceVersion, view.ExpansionRequired = "", false // no list has them
		views = append(views, view)
	}
	list := serve.Collection(q, resource.TypeVolume, views)
	list.CreateTypes = map[string]string{resource.TypeVolume: q.CollectionURL(resource.TypeVolume)}
	body, err := serve.Encode(list)
	apitest.Must(f.T, err)
	return body
}

// caller is an open stream with the list that its messages have led to.
type caller struct {
	base, self string
	deltas     bool
	messages   chan []byte
	// head and members are the list; without deltas head is all of it.
	head    []byte
	members map[string]json.RawMessage
	count   int
}

// newCaller opens a stream of volumes for the URLs of a host.
func (f *fixture) newCaller(host, path string, deltas bool) *caller {
	f.T.Helper()
	c := &caller{base: "http://" + host, self: "http://" + host + path, deltas: deltas, messages: make(chan []byte, 1)}
	if deltas {
		path += "?deltas=true"
	}
	dialer := websocket.Dialer{EnableCompression: strings.HasPrefix(host, "z")}
	conn, _, err := dialer.Dial("ws"+strings.TrimPrefix(f.URL, "http")+path, http.Header{"Host": {host}})
	apitest.Must(f.T, err)
	ended := make(chan struct{})
	f.T.Cleanup(func() {
		conn.Close()
		for range c.messages {
			continue
		}
		<-ended
	})
	go func() {
		defer close(ended)
		defer close(c.messages)
		for {
			_, text, err := conn.ReadMessage()
			if err != nil {
				return
			}
			c.messages <- text
		}
	}()
	return c
}

// parsed is a message.
type parsed struct {
	Type, ResourceType string
	Data               []json.RawMessage
	Removed            []string
}

// take applies a message.
func (c *caller) take(t *testing.T, text []byte) {
	t.Helper()
	c.count++
	var m parsed
	apitest.Must(t, json.Unmarshal(text, &m))
	if m.ResourceType != resource.TypeVolume || m.Data == nil {
		t.Fatalf("message %s", text)
	}
	switch {
	case m.Type == resource.CollectionType && (!c.deltas || c.count == 1):
		at := bytes.Index(text, []byte(`"data":[`)) + len(`"data":[`)
		c.head, c.members = text[:at], map[string]json.RawMessage{}
	case m.Type != resource.ChangesType || !c.deltas || c.count == 1 || m.Removed == nil ||
		len(m.Data)+len(m.Removed) == 0:
		t.Fatalf("message %d, deltas %t: %s", c.count, c.deltas, text)
	}
	for _, id := range m.Removed {
		if c.members[id] == nil {
			t.Errorf("%s is removed and was not there", id)
		}
		delete(c.members, id)
	}
	for _, raw := range m.Data {
		var r resource.Resource
		apitest.Must(t, json.Unmarshal(raw, &r))
		if bytes.Equal(c.members[r.ID], raw) {
			t.Errorf("%s has not changed and is sent", r.ID)
		}
		c.members[r.ID] = raw
	}
}

// list is what the caller has.
func (c *caller) list() []byte {
	text := slices.Clone(c.head)
	for i, id := range slices.Sorted(maps.Keys(c.members)) {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, c.members[id]...)
	}
	return append(text, "]}"...)
}

// reaches waits until the caller has a list.
func (c *caller) reaches(t *testing.T, want func() []byte) {
	t.Helper()
	end := wait.Late()
	for {
		if c.count > 0 && bytes.Equal(c.list(), want()) {
			return
		}
		select {
		case text, ok := <-c.messages:
			if !ok {
				t.Fatal("the stream has ended")
			}
			c.take(t, text)
		case <-time.After(20 * time.Millisecond): // the cache may be behind
		case <-end:
			wait.RanOut(t, "the list of volumes")
			t.Fatalf("%s, deltas %t: after %d messages the list is\n%s\nnot\n%s", c.base, c.deltas, c.count, c.list(),
				want())
		}
	}
}

// changer changes objects of all kinds that enter the view of a volume, at random.
type changer struct {
	t    *testing.T
	rng  *rand.Rand
	into *apitest.LeaderCache
	objs map[string]client.Object
	made int
}

func (w *changer) put(o client.Object) {
	key := fmt.Sprintf("%T/%s", o, o.GetName())
	_, have := w.objs[key]
	w.objs[key] = o
	w.into.Put(w.t, o, !have)
}

// fresh is the list of volumes as the objects are, which the cache may not know yet.
func (w *changer) fresh(f *fixture, base, self string) []byte {
	return f.fresh(held(w.objs), base, self)
}

// held are objects by type and name, to be read without indexes.
type held map[string]client.Object

// Get implements client.Reader.
func (h held) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	o := h[fmt.Sprintf("%T/%s", into, key.Name)]
	if o == nil {
		return apierrors.NewNotFound(lh.GroupVersion.WithResource("objects").GroupResource(), key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(o.DeepCopyObject()).Elem())
	return nil
}

// List implements client.Reader.
func (h held) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	var asked client.ListOptions
	if asked.ApplyOptions(options); asked.FieldSelector != nil {
		return errors.New("field label not supported")
	}
	items := reflect.ValueOf(into).Elem().FieldByName("Items")
	for _, key := range slices.Sorted(maps.Keys(h)) {
		if o := reflect.ValueOf(h[key].DeepCopyObject()).Elem(); o.Type() == items.Type().Elem() {
			items.Set(reflect.Append(items, o))
		}
	}
	return nil
}

// pick is one of the objects; nil if there is none.
func (w *changer) pick() client.Object {
	if keys := slices.Sorted(maps.Keys(w.objs)); len(keys) > 0 {
		return w.objs[keys[w.rng.IntN(len(keys))]]
	}
	return nil
}

// word is a text, with what JSON must escape and what looks like a link.
func (w *changer) word() string {
	words := []string{"", "plain", `:"/v1/volumes/x`, "<&>", "\u2028\x01\"\\", "node-1", "\xff", "é"}
	return words[w.rng.IntN(len(words))] + fmt.Sprint(w.rng.IntN(3))
}

func (w *changer) step() {
	switch w.rng.IntN(8) {
	case 0: // a new volume, or one that was gone
		w.made++
		for _, o := range resttest.Volume(fmt.Sprintf("v%d", w.rng.IntN(8))) {
			if _, have := w.objs[fmt.Sprintf("%T/%s", o, o.GetName())]; !have && w.rng.IntN(6) > 0 {
				w.put(o)
			}
		}
	case 1:
		if o := w.pick(); o != nil {
			delete(w.objs, fmt.Sprintf("%T/%s", o, o.GetName()))
			w.into.Remove(w.t, o)
		}
	default:
		if o := w.pick(); o != nil {
			w.change(o)
		}
	}
}

func (w *changer) change(o client.Object) {
	switch o := o.(type) {
	case *lh.Volume:
		w.changeVolume(o)
	case *lh.Engine:
		w.changeEngine(o)
	case *lh.Replica:
		switch w.rng.IntN(4) {
		case 0:
			o.Status.CurrentState = lh.InstanceStateRunning
		case 1:
			o.Spec.FailedAt = w.word()
		case 2:
			o.Status.OwnerID = w.word() // no part of the view
		case 3: // another one of the same volume
			o = o.DeepCopy()
			o.Name = fmt.Sprintf("%s-r-%d", o.Spec.VolumeName, w.rng.IntN(3))
		}
		w.put(o)
		return
	case *lh.VolumeAttachment:
		if w.rng.IntN(3) == 0 {
			o.Spec.AttachmentTickets = nil
		} else {
			o.Spec.AttachmentTickets = map[string]lh.AttachmentTicket{w.word(): {NodeID: w.word(), Generation: 1}}
		}
	}
	w.put(o)
}

func (w *changer) changeVolume(v *lh.Volume) {
	switch w.rng.IntN(6) {
	case 0:
		v.Spec.LastAttachedBy = w.word()
	case 1:
		v.Status.State = []lh.VolumeState{lh.VolumeStateNew, lh.VolumeStateAttached, lh.VolumeStateDetached,
			lh.VolumeStateAttaching}[w.rng.IntN(4)]
	case 2:
		v.Status.Conditions = []lh.Condition{{Type: w.word(), Status: lh.ConditionTrue, Message: w.word()}}
	case 3:
		v.Spec.NumberOfReplicas = w.rng.IntN(4)
	case 4:
		v.DeletionTimestamp = &metav1.Time{Time: resttest.Created}
	case 5:
		v.Labels = map[string]string{"no": "part-of-the-view"}
	}
}

func (w *changer) changeEngine(e *lh.Engine) {
	switch w.rng.IntN(4) {
	case 0:
		e.Status.Endpoint = w.word()
	case 1:
		e.Status.ReplicaModeMap = map[string]lh.ReplicaMode{e.Spec.VolumeName + "-r-11111111": lh.ReplicaModeWO}
	case 2:
		e.Status.Snapshots = map[string]lh.SnapshotInfo{"s": {Size: fmt.Sprint(w.rng.IntN(9))}}
	case 3:
		e.Status.RebuildStatus = map[string]lh.RebuildStatus{w.word(): {Progress: w.rng.IntN(100), IsRebuilding: true}}
	}
}

// TestCacheAgainstFreshViews: whatever changes, deltas applied to the first list are the whole
// list, byte by byte, whole lists are what a server without a cache would send, and so is the
// answer of a request; for callers with different links, that open their streams at different
// times.
func TestCacheAgainstFreshViews(t *testing.T) {
	t.Parallel()
	src := seeded.New(t, "the changes of a stream, applied to its first list, give the whole list (docs/guide/rest.md)")
	for range src.Seeds(6) {
		f, c := newLeader(t)
		w := &changer{t: t, rng: src.Rand(0), into: c, objs: map[string]client.Object{}}
		var callers []*caller
		for round := range 25 {
			for range w.rng.IntN(9) {
				w.step()
			}
			if round%5 == 0 {
				host := []string{"one.example", "z.example:8443", `127.0.0.1:1`}[w.rng.IntN(3)]
				path := []string{"/v1/ws/volumes", "/v1/ws/10ms/volumes"}[w.rng.IntN(2)]
				callers = append(callers, f.newCaller(host, path, false), f.newCaller(host, path, true))
			}
			if w.rng.IntN(10) == 0 { // links of later callers only
				c.Put(t, &lh.Setting{ObjectMeta: resttest.Meta("unrelated"), Value: w.word()}, true)
			}
			// What no stream tells of must have arrived, too.
			if w.rng.IntN(2) == 0 {
				for _, one := range callers {
					one.reaches(t, func() []byte { return w.fresh(f, one.base, one.self) })
				}
			}
		}
		for _, one := range callers {
			one.reaches(t, func() []byte { return w.fresh(f, one.base, one.self) })
		}
		for _, host := range []string{"one.example", "other"} {
			want := w.fresh(f, "http://"+host, "http://"+host+"/v1/volumes")
			if got := f.Do("GET", "/v1/volumes", "", "Host", host); got.Text != string(want) {
				t.Errorf("GET for %s:\n%s\nnot\n%s", host, got.Text, want)
			}
		}
	}
}

// TestLinksOfTheBase: what a proxy says the base is comes into links as it does without the cache,
// whatever is in it, and setting manager-url holds for who comes later.
func TestLinksOfTheBase(t *testing.T) {
	f, c := newLeader(t, resttest.Volume("demo")...)
	for _, base := range []string{"https://ui.example/a", `https://x/"quoted"\`, "https://x/<&>\u2028", "https://x/\xff"} {
		q := serve.NewRequest(t.Context(), f.Server, base, base+"/v1")
		list, err := f.Server.Table().Streams["volumes"].List(q)
		apitest.Must(t, err)
		got, err := serve.Encode(list)
		apitest.Must(t, err)
		if want := f.freshVolumes(base, base+"/v1"); !bytes.Equal(got, want) {
			t.Errorf("base %q:\n%s\nnot\n%s", base, got, want)
		}
	}
	c.Put(t, &lh.Setting{ObjectMeta: resttest.Meta(setting.ManagerURL), Value: "https://set.example"}, true)
	wait.Until(t, "the links follow setting manager-url", func() bool {
		return strings.Contains(f.Do("GET", "/v1/volumes", "").Text, `"https://set.example/v1/volumes/demo?action=`)
	})
}

// TestCacheAsksForRights: what is kept is shown to nobody who may not see it.
func TestCacheAsksForRights(t *testing.T) {
	f := guarded(t, &resttest.Reviews{Rights: apitest.Users}, "none", apitest.Same)
	for _, tt := range []struct {
		user   string
		status int
	}{{"reader", 200}, {"owner", 403}, {"nobody", 403}, {"admin", 200}} {
		if a := f.Do("GET", "/v1/volumes", "", apitest.Bearer(tt.user)...); a.Status != tt.status ||
			strings.Contains(a.Text, "demo-e-0") != (tt.status == 200) {
			t.Errorf("%s: %d %s", tt.user, a.Status, a.Text)
		}
		for _, query := range []string{"", "?deltas=true"} {
			conn, resp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(f.URL, "http")+"/v1/ws/volumes"+query,
				http.Header{"Authorization": {"Bearer of-" + tt.user}})
			if (err == nil) != (tt.status == 200) || err != nil && (resp == nil || resp.StatusCode != 403) {
				t.Errorf("stream of %s: %v", tt.user, err)
			}
			if err == nil {
				conn.Close()
			}
		}
	}
}
