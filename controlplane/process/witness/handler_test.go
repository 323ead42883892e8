package witness

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/api/longhorn/v1beta2"
	witnessv1 "ankole.storage/api/rpc/witness/v1"
)

// handler over one Engine object; hooks may disturb.
func handler(t *testing.T, record *v1beta2.Membership, hooks interceptor.Funcs) Handler {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	e := &v1beta2.Engine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v-e-0"}}
	e.Spec.VolumeName = "v"
	e.Status.Membership = record
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(e).WithStatusSubresource(e).WithInterceptorFuncs(
		hooks).Build()
	return Handler{Client: c, Namespace: "ns"}
}

func record(uuid string, epoch, generation int64, members ...string) *witnessv1.Membership {
	return &witnessv1.Membership{VolumeUuid: uuid, Epoch: epoch, RecordEpoch: epoch, Generation: generation,
		Members: members, Engine: "v-e-0"}
}

func swap(h Handler, expected, next *witnessv1.Membership) (*witnessv1.CompareAndSwapResponse, error) {
	return h.CompareAndSwap(context.Background(), &witnessv1.CompareAndSwapRequest{
		VolumeName: "v", EngineName: "v-e-0", Expected: expected, Next: next,
	})
}

func TestSwap(t *testing.T) {
	stored := fromWire(record("u", 3, 5, "b", "a"))
	for _, tt := range []struct {
		name     string
		stored   *v1beta2.Membership
		expected *witnessv1.Membership
		next     *witnessv1.Membership
		swapped  bool
		code     codes.Code
	}{
		{"first record", nil, nil, record("u", 1, 1, "a"), true, codes.OK},
		{"first record, but there is one", stored, nil, record("u", 1, 1, "a"), false, codes.OK},
		{"expected record, but there is none", nil, record("u", 3, 5), record("u", 4, 5), false, codes.OK},
		{"next epoch", stored, record("u", 3, 5), record("u", 4, 5, "a", "b"), true, codes.OK},
		{"next generation", stored, record("u", 3, 5), record("u", 3, 6, "a"), true, codes.OK},
		{"stale epoch", stored, record("u", 2, 5), record("u", 4, 5), false, codes.OK},
		{"stale generation", stored, record("u", 3, 4), record("u", 3, 6), false, codes.OK},
		{"generation of another epoch", stored, func() *witnessv1.Membership {
			m := record("u", 3, 5)
			m.RecordEpoch = 2
			return m
		}(), record("u", 4, 5), false, codes.OK},
		{"another volume's record", stored, record("w", 3, 5), record("u", 4, 5), false, codes.OK},
		{"epoch goes back", stored, record("u", 3, 5), record("u", 2, 6), false, codes.InvalidArgument},
		{"generation goes back", stored, record("u", 3, 5), record("u", 3, 4), false, codes.InvalidArgument},
		{"lower generation of a later epoch", stored, record("u", 3, 5), record("u", 4, 4), true, codes.OK},
		{"no next record", stored, record("u", 3, 5), nil, false, codes.InvalidArgument},
	} {
		h := handler(t, tt.stored, interceptor.Funcs{})
		r, err := swap(h, tt.expected, tt.next)
		if status.Code(err) != tt.code || r.GetSwapped() != tt.swapped {
			t.Errorf("%s: swapped %v, %v", tt.name, r.GetSwapped(), err)
			continue
		}
		got, err := h.Get(t.Context(), &witnessv1.GetRequest{VolumeName: "v", EngineName: "v-e-0"})
		want := toWire(tt.stored)
		if tt.swapped {
			want = tt.next
		}
		if want == nil {
			if status.Code(err) != codes.NotFound {
				t.Errorf("%s: reading no record: %v", tt.name, err)
			}
			continue
		}
		if err != nil || got.GetEpoch() != want.GetEpoch() || got.GetGeneration() != want.GetGeneration() ||
			got.GetRecordEpoch() != want.GetRecordEpoch() || len(got.GetMembers()) != len(want.GetMembers()) {
			t.Errorf("%s: record %v, want %v (%v)", tt.name, got, want, err)
		}
		if tt.code == codes.OK && r.GetCurrent().GetEpoch() != want.GetEpoch() {
			t.Errorf("%s: answer shows %v", tt.name, r.GetCurrent())
		}
	}
}

// TestSwapOfAnOlderOrder: the engine that was ordered last may swap, whoever was ordered before may
// not, even with the record as it expects it; also if the order comes between reading and writing.
func TestSwapOfAnOlderOrder(t *testing.T) {
	order := func(h Handler, order string) {
		e := &v1beta2.Engine{}
		key := client.ObjectKey{Namespace: "ns", Name: "v-e-0"}
		if err := h.Client.Get(t.Context(), key, e); err != nil {
			t.Fatal(err)
		}
		if e.UID == "" {
			e.UID = "uid"
			if err := h.Client.Update(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		e.Status.Order = order
		if err := h.Client.Status().Update(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(h Handler, order string, expected, next *witnessv1.Membership) (bool, codes.Code) {
		r, err := h.CompareAndSwap(t.Context(), &witnessv1.CompareAndSwapRequest{VolumeName: "v", EngineName: "v-e-0",
			Expected: expected, Next: next, Order: order})
		return r.GetSwapped(), status.Code(err)
	}
	between := func() {}
	disturb := func() {
		now := between
		between = func() {}
		now()
	}
	h := handler(t, nil, interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object,
			opts ...client.SubResourceUpdateOption) error {
			disturb()
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			disturb()
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	order(h, "uid/4")
	var last *witnessv1.Membership
	for n, tt := range []struct {
		order   string
		swapped bool
		code    codes.Code
	}{
		{"uid/4", true, codes.OK},
		{"uid/3", false, codes.OutOfRange},
		{"gone/4", false, codes.OutOfRange},
		{"", true, codes.OK},
		{"uid/5", true, codes.OK},
	} {
		next := record("u", int64(n+1), 1, "a")
		swapped, code := ask(h, tt.order, last, next)
		if swapped != tt.swapped || code != tt.code {
			t.Errorf("order %q: swapped %v, %s; want %v, %s", tt.order, swapped, code, tt.swapped, tt.code)
		}
		if swapped {
			last = next
		}
	}
	between = func() { order(h, "uid/6") }
	if swapped, code := ask(h, "uid/5", last, record("u", 9, 1, "a")); swapped || code != codes.OutOfRange {
		t.Errorf("an order that came in between: swapped %v, %s", swapped, code)
	}
}

func TestAWriterInBetweenIsNoSwapOfOursLost(t *testing.T) {
	writes := 0
	hooks := interceptor.Funcs{SubResourceUpdate: func(ctx context.Context, c client.Client, sub string,
		o client.Object, opts ...client.SubResourceUpdateOption) error {
		writes++
		if writes == 1 { // somebody updates another part of the status first
			e := &v1beta2.Engine{}
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), e); err != nil {
				return err
			}
			e.Status.Endpoint = "/dev/longhorn/v"
			if err := c.SubResource(sub).Update(ctx, e); err != nil {
				return err
			}
		}
		return c.SubResource(sub).Update(ctx, o, opts...)
	}}
	h := handler(t, nil, hooks)
	r, err := swap(h, nil, record("u", 1, 1, "a"))
	if err != nil || !r.GetSwapped() {
		t.Fatalf("swapped %v, %v", r.GetSwapped(), err)
	}
	e := &v1beta2.Engine{}
	if err := h.Client.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "v-e-0"}, e); err != nil {
		t.Fatal(err)
	}
	if e.Status.Endpoint == "" || e.Status.Membership == nil {
		t.Fatalf("one of the two writes is lost: %+v", e.Status)
	}
}

// TestTwoWritersOfOneStatus: a swap is written once, and read for once, however often the engine
// controller writes the rest of the status meanwhile; only another record or another order in
// between makes it fail, and then nothing is written.
func TestTwoWritersOfOneStatus(t *testing.T) {
	for _, tt := range []struct {
		name    string
		between func(*v1beta2.Engine)
		swapped bool
		code    codes.Code
		reads   int
	}{
		{"nobody else", func(*v1beta2.Engine) {}, true, codes.OK, 1},
		{"the rest of the status", func(e *v1beta2.Engine) { e.Status.Endpoint = "/dev/longhorn/v" }, true, codes.OK, 1},
		{"another record", func(e *v1beta2.Engine) {
			e.Status.Membership = fromWire(record("u", 3, 6, "b"))
		}, false, codes.OK, 2},
		{"another order", func(e *v1beta2.Engine) { e.Status.Order = "uid/5" }, false, codes.OutOfRange, 2},
	} {
		reads, updates, disturbed := 0, 0, false
		h := handler(t, fromWire(record("u", 3, 5, "a", "b")), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
				opts ...client.GetOption) error {
				reads++
				return c.Get(ctx, key, o, opts...)
			},
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object,
				opts ...client.SubResourceUpdateOption) error {
				updates++
				return c.SubResource(sub).Update(ctx, o, opts...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
				opts ...client.SubResourcePatchOption) error {
				if !disturbed {
					disturbed = true
					change(t, c, tt.between)
				}
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		})
		change(t, h.Client, func(e *v1beta2.Engine) { e.Status.Order = "uid/4" })
		reads, updates = 0, 0
		r, err := h.CompareAndSwap(t.Context(), &witnessv1.CompareAndSwapRequest{VolumeName: "v", EngineName: "v-e-0",
			Expected: record("u", 3, 5), Next: record("u", 3, 7, "a"), Order: "uid/4"})
		if r.GetSwapped() != tt.swapped || status.Code(err) != tt.code || reads != tt.reads || updates != 0 {
			t.Errorf("%s: swapped %v, %v, with %d reads and %d updates; want %v, %s, %d reads", tt.name, r.GetSwapped(), err,
				reads, updates, tt.swapped, tt.code, tt.reads)
		}
		change(t, h.Client, func(e *v1beta2.Engine) {
			want := &v1beta2.Engine{}
			want.Status.Membership = fromWire(record("u", 3, 5, "a", "b"))
			tt.between(want)
			if tt.swapped {
				want.Status.Membership = fromWire(record("u", 3, 7, "a"))
			}
			if e.Status.Membership.Generation != want.Status.Membership.Generation || e.Status.Endpoint != want.Status.Endpoint {
				t.Errorf("%s: left is %+v, endpoint %q", tt.name, e.Status.Membership, e.Status.Endpoint)
			}
		})
	}
}

// change edits the engine past the hooks of updates that a handler counts.
func change(t *testing.T, c client.Client, edit func(*v1beta2.Engine)) {
	t.Helper()
	e := &v1beta2.Engine{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "v-e-0"}, e); err != nil {
		t.Fatal(err)
	}
	if e.UID == "" {
		e.UID = "uid"
		if err := c.Update(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	edit(e)
	if err := c.Status().Update(t.Context(), e); err != nil {
		t.Fatal(err)
	}
}

func TestQuestionsAboutNoSuchEngine(t *testing.T) {
	h := handler(t, nil, interceptor.Funcs{})
	_, err := h.Get(t.Context(), &witnessv1.GetRequest{VolumeName: "v", EngineName: "v-e-9"})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("unknown engine: %v; NOT_FOUND would mean that there is no record yet", err)
	}
	_, err = h.Get(t.Context(), &witnessv1.GetRequest{VolumeName: "w", EngineName: "v-e-0"})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("engine of another volume: %v", err)
	}
}

// TestSwapByTheAgentOfANode: an agent records members of engines that are to run on its node; of
// others it changes nothing and says so, which leaves the question to a controller.
func TestSwapByTheAgentOfANode(t *testing.T) {
	for node, want := range map[string]codes.Code{"": codes.OK, "n1": codes.OK, "n2": codes.PermissionDenied} {
		h := handler(t, fromWire(record("u", 3, 5, "a", "b")), interceptor.Funcs{})
		e := &v1beta2.Engine{}
		if err := h.Client.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "v-e-0"}, e); err != nil {
			t.Fatal(err)
		}
		e.Spec.NodeID = "n1"
		if err := h.Client.Update(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		h.Node = node
		if _, err := swap(h, record("u", 3, 5), record("u", 3, 6, "a")); status.Code(err) != want {
			t.Errorf("by the agent of %q: %v, want %s", node, err, want)
		}
		got, err := h.Get(t.Context(), &witnessv1.GetRequest{VolumeName: "v", EngineName: "v-e-0"})
		if err != nil || (got.GetGeneration() == 6) != (want == codes.OK) {
			t.Errorf("by the agent of %q: the record is %v, %v", node, got, err)
		}
	}
}
