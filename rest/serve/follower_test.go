package serve_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resttest"
	"ankole.storage/rest/serve"
	"ankole.storage/test/wait"
)

// TestSlowClient: a client that does not read gets no message of each change when it reads again,
// but soon the list as it is.
func TestSlowClient(t *testing.T) {
	objects, engines := apitest.ManyVolumes(300)
	for _, query := range []string{"", "?deltas=true"} {
		f, c := newLeader(t, objects...)
		conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(f.URL, "http")+"/v1/ws/volumes"+query, nil)
		apitest.Must(t, err)
		t.Cleanup(func() { conn.Close() })
		const rounds = 40
		for i := range rounds {
			for _, e := range engines {
				e.Status.Endpoint = fmt.Sprintf("/dev/longhorn/%s%s-%d", e.Spec.VolumeName, query, i)
				c.Put(t, e, false)
			}
		}
		f.awaitFresh(fmt.Sprintf("%s-%d\"", query, rounds-1), len(engines))
		_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		seen, messages := map[string]string{}, 0
		for !allAt(seen, engines) {
			_, text, err := conn.ReadMessage()
			apitest.Must(t, err)
			messages++
			var got struct {
				Data []struct {
					Name        string
					Controllers []struct{ Endpoint string }
				}
			}
			apitest.Must(t, json.Unmarshal(text, &got))
			for _, v := range got.Data {
				seen[v.Name] = v.Controllers[0].Endpoint
			}
		}
		if messages > rounds*3/4 {
			t.Errorf("%q: %d messages for %d rounds of changes", query, messages, rounds)
		}
	}
}

// awaitFresh waits until a text is in the list so many times.
func (f *fixture) awaitFresh(text string, times int) {
	f.T.Helper()
	wait.Until(f.T, fmt.Sprintf("%d times %s in the list", times, text), func() bool {
		return strings.Count(string(f.freshVolumes("http://h", "http://h")), text) >= times
	})
}

func allAt(seen map[string]string, engines []*lh.Engine) bool {
	for _, e := range engines {
		if seen[e.Spec.VolumeName] != e.Status.Endpoint {
			return false
		}
	}
	return true
}

// unindexed is a reader of a manager that does not lead.
type unindexed struct{ client.Reader }

func (u unindexed) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	if o.ApplyOptions(opts); o.FieldSelector != nil {
		return errors.New("field label not supported")
	}
	return u.Reader.List(ctx, list, opts...)
}

// TestStreamWithoutIndexes: who cannot read the parts of one volume reads all.
func TestStreamWithoutIndexes(t *testing.T) {
	c := apitest.NewLeaderCache(t, resttest.Volume("demo")...)
	f := newFixtureWith(t, interceptor.Funcs{}, func(cfg *rest.Config) {
		cfg.Reader = unindexed{c}
		cfg.Informers = func() cache.Informers { return c }
	})
	one := f.newCaller("h", "/v1/ws/volumes", true)
	one.reaches(t, func() []byte { return f.freshVolumes(one.base, one.self) })
	e := resttest.Volume("demo")[1].(*lh.Engine)
	e.Status.Endpoint = "/dev/longhorn/demo"
	c.Put(t, e, false)
	one.reaches(t, func() []byte { return f.freshVolumesSoonAs(one, e.Status.Endpoint) })
	if one.count != 2 {
		t.Errorf("%d messages", one.count)
	}
}

func (f *fixture) freshVolumesSoonAs(one *caller, text string) []byte {
	f.awaitFresh(text, 1)
	return f.freshVolumes(one.base, one.self)
}

// TestStreamEndsWithTheLeadership: what told a stream of changes tells nothing once another manager
// leads; the client is to come back.
func TestStreamEndsWithTheLeadership(t *testing.T) {
	first, second := cache.Informers(apitest.NewLeaderCache(t)), cache.Informers(apitest.NewLeaderCache(t))
	now := first
	s, err := serve.New(serve.Config{Client: newFixture(t).Client, Open: true,
		Informers: func() cache.Informers { return now }, Logger: slog.New(slog.DiscardHandler)}, serve.Table{})
	apitest.Must(t, err)
	r, err := http.NewRequest(http.MethodGet, "/v1/ws/volumes", nil)
	apitest.Must(t, err)
	for _, now = range []cache.Informers{second, nil} {
		if serve.Alive(s, r, first, &websocket.Conn{}) {
			t.Errorf("it goes on with %v", now)
		}
	}
}

// TestStreamThatBeganWithoutALeader: a stream that looks at live lists since nobody led at its
// start ends when another manager leads, or this one; until then it goes on.
func TestStreamThatBeganWithoutALeader(t *testing.T) {
	var leads *serve.Target
	var tells cache.Informers
	f := newFixtureWith(t, interceptor.Funcs{}, func(cfg *rest.Config) {
		cfg.Informers = func() cache.Informers { return tells }
		cfg.Leader = func(*http.Request) *serve.Target { return leads }
	})
	r, err := http.NewRequest(http.MethodGet, "/v1/ws/volumes", nil)
	apitest.Must(t, err)
	conn := f.Follow("/v1/ws/volumes")
	alive := func() bool { return serve.Alive(f.Server, r, nil, conn) }
	if !alive() {
		t.Error("it ends while nobody leads")
	}
	leads = &serve.Target{Host: "192.0.2.1:9502"}
	if alive() {
		t.Error("it goes on looking at live lists while another manager leads")
	}
	leads, tells = nil, apitest.NewLeaderCache(t)
	if alive() {
		t.Error("it goes on looking at live lists while this manager leads")
	}
}

// TestAllListsAsBefore: every stream's first message, and the texts that deltas are made of, are
// what encoding the list in one piece gives.
func TestAllListsAsBefore(t *testing.T) {
	f := newFixture(t, resttest.Cluster(resttest.Volume("demo")...)...)
	for name, which := range apitest.Tables().Streams {
		q := serve.NewRequest(t.Context(), f.Server, f.URL, f.URL+"/v1/ws/"+name)
		answer, err := which.List(q)
		apitest.Must(t, err)
		whole, err := serve.Encode(answer)
		apitest.Must(t, err)
		list, err := serve.ListingOf(answer)
		apitest.Must(t, err)
		if got := list.AppendTo(nil); string(got) != string(whole) || len(got) != list.Size() {
			t.Errorf("%s:\n%s\nnot\n%s", name, got, whole)
		}
		if !list.Keyed() {
			t.Errorf("%s: its members are not in order of their ids, so that there are no deltas", name)
		}
	}
}

// TestDeltasOfOtherStreams: lists that are made whole give deltas, too.
func TestDeltasOfOtherStreams(t *testing.T) {
	f := newFixture(t, resttest.Cluster()...)
	conn := f.Follow("/v1/ws/nodes?deltas=true")
	var got parsed
	apitest.Must(t, conn.ReadJSON(&got))
	if got.Type != "collection" || len(got.Data) != 3 {
		t.Fatalf("%+v", got)
	}
	n := resttest.ReadyNode("node-2")
	f.Read("node-2", n)
	n.Spec.AllowScheduling = false
	apitest.Must(t, f.Client.Update(t.Context(), n))
	got = parsed{}
	apitest.Must(t, conn.ReadJSON(&got))
	if got.Type != "changes" || got.ResourceType != "node" || len(got.Data) != 1 || len(got.Removed) != 0 ||
		!strings.Contains(string(got.Data[0]), `"id":"node-2"`) {
		t.Errorf("%+v", got)
	}
	gone := resttest.DownNode("node-3")
	apitest.Must(t, f.Client.Delete(t.Context(), gone))
	got = parsed{}
	apitest.Must(t, conn.ReadJSON(&got))
	if got.Type != "changes" || len(got.Data) != 0 || fmt.Sprint(got.Removed) != "[node-3]" {
		t.Errorf("%+v", got)
	}
}
