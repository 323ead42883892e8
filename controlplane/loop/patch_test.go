package loop

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestTwoWritersOfOneStatus: what somebody else writes elsewhere in the status does not make this
// writer read and write again, and is not overwritten; a value that both write is written once the
// newer one was read.
func TestTwoWritersOfOneStatus(t *testing.T) {
	for _, tt := range []struct {
		name             string
		other            func(*corev1.PodStatus)
		patches, updates int
		steps            int
	}{
		{"nobody else", func(*corev1.PodStatus) {}, 1, 0, 1},
		{"elsewhere", func(s *corev1.PodStatus) { s.PodIP = "10.0.0.1" }, 1, 0, 1},
		{"the same value", func(s *corev1.PodStatus) { s.Message = "theirs" }, 2, 1, 2},
	} {
		patches, updates, disturbed := 0, 0, false
		w := newWorld(t, func(_ time.Time, p *corev1.Pod, _ int) Decision {
			p.Status.Message = "ours"
			return Decision{}
		}, interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
				opts ...client.SubResourcePatchOption) error {
				if patches++; !disturbed {
					disturbed = true
					edit(t, c, tt.other)
				}
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object,
				opts ...client.SubResourceUpdateOption) error {
				updates++
				return c.SubResource(sub).Update(ctx, o, opts...)
			},
		})
		edit(t, w.Client, func(s *corev1.PodStatus) { s.Message = "before" })
		w.r.SharedStatus, updates = true, 0
		for range tt.steps {
			w.step(t)
		}
		if patches != tt.patches || updates != tt.updates {
			t.Errorf("%s: %d patches and %d updates, want %d and %d", tt.name, patches, updates, tt.patches, tt.updates)
		}
		want, got := corev1.PodStatus{}, &corev1.Pod{}
		tt.other(&want)
		if err := w.Get(t.Context(), key, got); err != nil {
			t.Fatal(err)
		}
		if got.Status.Message != "ours" || got.Status.PodIP != want.PodIP {
			t.Errorf("%s: left is %q at %q", tt.name, got.Status.Message, got.Status.PodIP)
		}
	}
}

// edit is another writer of the Pod's status.
func edit(t *testing.T, c client.Client, change func(*corev1.PodStatus)) {
	t.Helper()
	p := &corev1.Pod{}
	if err := c.Get(t.Context(), key, p); err != nil {
		t.Fatal(err)
	}
	change(&p.Status)
	if err := c.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// TestCompareStatuses is the table of the operations that turn one value into another.
func TestCompareStatuses(t *testing.T) {
	for _, tt := range []struct{ from, to, want string }{
		{`{"a":1}`, `{"a":1}`, `null`},
		{`{"a":1}`, `{"a":2}`,
			`[{"op":"test","path":"/s/a","value":1},{"op":"replace","path":"/s/a","value":2}]`},
		{`{"a":{"b":1,"c":2}}`, `{"a":{"b":1,"c":3}}`,
			`[{"op":"test","path":"/s/a/c","value":2},{"op":"replace","path":"/s/a/c","value":3}]`},
		{`{"a":{}}`, `{"a":{"x/y~z":1}}`, `[{"op":"add","path":"/s/a/x~1y~0z","value":1}]`},
		{`{"a":1,"b":2}`, `{"b":2}`,
			`[{"op":"test","path":"/s/a","value":1},{"op":"remove","path":"/s/a","value":null}]`},
		{`{"a":[1,2]}`, `{"a":[1,3]}`,
			`[{"op":"test","path":"/s/a","value":[1,2]},{"op":"replace","path":"/s/a","value":[1,3]}]`},
		{`{"a":null}`, `{"a":{"b":1}}`,
			`[{"op":"test","path":"/s/a","value":null},{"op":"replace","path":"/s/a","value":{"b":1}}]`},
	} {
		var from, to any
		for text, into := range map[string]*any{tt.from: &from, tt.to: &to} {
			if err := json.Unmarshal([]byte(text), into); err != nil {
				t.Fatal(err)
			}
		}
		if tt.from == tt.to {
			to = from
		}
		got, err := json.Marshal(compare(nil, "/s", from, to))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s to %s: %s, want %s (%v)", tt.from, tt.to, got, tt.want, err)
		}
	}
}
