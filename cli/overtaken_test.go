package cli

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/cli/kube/kubetest"
	"ankole.storage/rest/resttest"
	"ankole.storage/test/lack"
)

// meanwhile runs a command, and plays the controllers or another user beside it: it looks at the
// volume of that name again and again until do has done something.
func (b *bed) meanwhile(command, name string, do func(*lh.Volume) (done bool, err error)) result {
	var wg sync.WaitGroup
	ctx, over := context.WithCancel(b.t.Context())
	wg.Go(func() {
		for ctx.Err() == nil {
			var v lh.Volume
			if b.client.Get(ctx, client.ObjectKey{Namespace: lh.Namespace, Name: name}, &v) != nil {
				continue // it is not there yet
			}
			if done, err := do(&v); err != nil {
				b.t.Error(err)
				return
			} else if done {
				return
			}
		}
		b.t.Errorf("%s is over before anything has happened to volume %s", command, name)
	})
	r := b.run(strings.Fields(command)...)
	over()
	wg.Wait()
	return r
}

// lastWord is what a command says in the end, without the progress before, of which it sees more or
// less.
func lastWord(r result) string { return r.err[max(strings.Index(r.err, "error: "), 0):] }

// overtaken are commands that wait and what happens to their volume meanwhile, by command.
var overtaken = []struct {
	command, volume string
	meanwhile       func(*bed, *lh.Volume) (done bool, err error)
}{
	{"volume create copy --from busy", "copy", func(b *bed, v *lh.Volume) (bool, error) {
		v.Status.CloneStatus = lh.VolumeCloneStatus{State: lh.VolumeCloneStateFailed, AttemptCount: 3}
		return true, b.client.Status().Update(context.Background(), v)
	}},
	{"volume set-locality busy best-effort", "busy", func(b *bed, v *lh.Volume) (bool, error) {
		if v.Spec.DataLocality != lh.DataLocalityBestEffort {
			return false, nil
		}
		v.Spec.DataLocality = lh.DataLocalityDisabled
		return true, b.client.Update(context.Background(), v)
	}},
	{"volume upgrade still --image " + otherImage, "still", func(b *bed, v *lh.Volume) (bool, error) {
		if v.Spec.Image != otherImage {
			return false, nil
		}
		v.Status.Conditions = []lh.Condition{{Type: "EngineUpgrade", Status: lh.ConditionFalse,
			Reason: "RolledBack", Message: "the new engine did not start: no space left on device"}}
		if err := b.client.Status().Update(context.Background(), v); err != nil {
			return false, err
		}
		v.Spec.Image = resttest.Image
		return true, b.client.Update(context.Background(), v)
	}},
}

// TestErrorsOfOvertaken compares with the golden file what commands say that wait for something
// which fails, or which somebody else has changed.
func TestErrorsOfOvertaken(t *testing.T) {
	var all strings.Builder
	for _, o := range overtaken {
		b := newBed(t, cluster()...)
		if o.volume == "still" {
			b = upgradeBed(t)
		}
		r := b.meanwhile(o.command, o.volume, func(v *lh.Volume) (bool, error) { return o.meanwhile(b, v) })
		fmt.Fprintf(&all, "$ ankole %s\n%s[%d]\n\n", o.command, lastWord(r), r.status)
	}
	for _, command := range []string{"volume attach demo", "snapshot create busy new"} {
		r := newBedOf(t, deletedWhenRead(), cluster()...).run(strings.Fields(command)...)
		fmt.Fprintf(&all, "$ ankole %s\n%s[%d]\n\n", command, lastWord(r), r.status)
	}
	golden(t, "errors-of-overtaken", all.String())
}

// deletedWhenRead has a volume that is being attached, and a snapshot that is being taken, deleted
// as soon as somebody has read it.
func deletedWhenRead() interceptor.Funcs {
	ticket := func(ctx context.Context, c client.WithWatch, of *lh.Volume) bool {
		var a lh.VolumeAttachment
		return c.Get(ctx, client.ObjectKeyFromObject(of), &a) == nil && a.Spec.AttachmentTickets[""].NodeID != ""
	}
	return interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := c.List(ctx, list, opts...); err != nil {
				return err
			}
			volumes, is := list.(*lh.VolumeList)
			for i := 0; is && i < len(volumes.Items); i++ {
				if ticket(ctx, c, &volumes.Items[i]) {
					_ = c.Delete(ctx, volumes.Items[i].DeepCopy()) // it may be gone
				}
			}
			return nil
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			err := c.Get(ctx, key, o, opts...)
			if s, is := o.(*lh.Snapshot); is && err == nil && s.Spec.CreateSnapshot {
				_ = c.Delete(ctx, s.DeepCopy())
			}
			return err
		},
	}
}

// TestErrorsOfTimeouts compares what commands say that have waited in vain.
func TestErrorsOfTimeouts(t *testing.T) {
	lack.RealTime(t, "what is given up after 300 ms")
	kept := resttest.Volume("kept")
	kept[0].SetFinalizers([]string{"longhorn.io"})
	b, _ := snapshotBed(t, append(snapshotCluster(), kept...)...)
	// New volumes are taken and not shown, as by a manager that has not seen them yet.
	blind := newBedOf(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
		opts ...client.ListOption) error {
		err := c.List(ctx, list, opts...)
		if volumes, is := list.(*lh.VolumeList); is {
			volumes.Items = slices.DeleteFunc(volumes.Items, func(v lh.Volume) bool { return v.Name == "new" })
		}
		return err
	}}, cluster()...)
	var all strings.Builder
	for _, c := range []struct {
		bed     *bed
		command string
	}{
		{b, "volume attach demo --timeout 300ms"},
		{b, "volume delete kept --yes --timeout 300ms"},
		{b, "snapshot create busy new --timeout 300ms"},
		{blind, "volume create new --size 1Gi --timeout 300ms"},
		{b, "engine-image create registry/new:1 --timeout 300ms"},
		{newBed(t, troubled()...), "node evict node-1 --timeout 300ms"},
		{stuckPurge(t), "snapshot purge busy --timeout 300ms"},
	} {
		r := c.bed.run(strings.Fields(c.command)...)
		fmt.Fprintf(&all, "$ ankole %s\n%s[%d]\n\n", c.command, lastWord(r), r.status)
	}
	golden(t, "errors-of-timeouts", all.String())
}

// TestErrorsOfTheWay compares what commands say that do not reach the API, or do not understand
// what answers there.
func TestErrorsOfTheWay(t *testing.T) {
	b := newBed(t, cluster()...)
	lost := kubetest.New(t, b.url)
	lost.Refuse = "connection refused"
	mute := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(mute.Close)
	s, silent := kubetest.New(t, b.url), kubetest.New(t, mute.URL)
	dir := t.TempDir()
	foreign := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/events":
			fmt.Fprint(w, `{"data": [{"id": "e1", "event": {"metadata": {"name": "e1"}, "count": "many"}}]}`)
		case "/v1/nodes":
			fmt.Fprint(w, "<html>It works!</html>")
		default:
			http.Error(w, "<html>Bad gateway</html>", http.StatusBadGateway)
		}
	}))
	t.Cleanup(foreign.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	pairs := []string{"LOST", lost.Kubeconfig(), "SILENT", silent.Kubeconfig(), "KUBECONFIG", s.Kubeconfig(), "FOREIGN",
		strings.TrimPrefix(foreign.URL, "http://"), "NOBODY", nobody, "DIR", dir, "API", s.URL}
	there, back := strings.NewReplacer(pairs...), slices.Clone(pairs)
	slices.Reverse(back)
	names := strings.NewReplacer(back...)
	var all strings.Builder
	for _, command := range []string{
		"volume list --server http://NOBODY",
		"volume list --server https://NOBODY --ca-file DIR/none",
		"volume list --server ftp://NOBODY",
		"volume list --server http://FOREIGN",
		"node list --server http://FOREIGN",
		"event list --server http://FOREIGN",
		"volume list --port-forward --kubeconfig LOST",
		"volume list --port-forward --kubeconfig SILENT",
		"volume list --port-forward --kubeconfig DIR/none",
		"volume list --port-forward --kubeconfig KUBECONFIG --context none",
		"volume list --port-forward --kubeconfig KUBECONFIG --context weak",
		"volume list --port-forward --kubeconfig KUBECONFIG --context stranger",
		"volume list --port-forward --kubeconfig KUBECONFIG --context untrusted",
		"volume list --port-forward --kubeconfig KUBECONFIG --namespace other",
		"volume list --port-forward --kubeconfig KUBECONFIG --account gone",
		"volume list --port-forward --kubeconfig KUBECONFIG --token-file DIR/none",
		"volume list --namespace other",
	} {
		r := runArgs(t.Context(), strings.Fields(there.Replace(command))...)
		fmt.Fprintf(&all, "$ ankole %s\n%s[%d]\n\n", command, names.Replace(r.err), r.status)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(filepath.Dir(program), standaloneProgram)
	names = strings.NewReplacer(program, "PROGRAM")
	for _, what := range []string{"", "not a program"} {
		if what != "" {
			if err := os.WriteFile(program, []byte(what), 0o700); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Remove(program) }) // its folder is removed with it
		}
		r := runArgs(t.Context(), "standalone")
		fmt.Fprintf(&all, "$ ankole standalone\n%s[%d]\n\n", names.Replace(r.err), r.status)
	}
	golden(t, "errors-of-the-way", all.String())
}
