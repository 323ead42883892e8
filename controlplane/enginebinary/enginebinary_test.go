package enginebinary

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ankole.storage/controlplane/naming"
	"ankole.storage/test/wait"
)

// image installs a shell script as the binary of an image and returns a runner that finds it.
func image(t *testing.T, name, script string) *Local {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, naming.EngineBinaryOnHost(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return NewLocal(func(path string) string { return filepath.Join(dir, path) })
}

// ways runs a binary here, and through a server as another manager does.
func ways(t *testing.T, l *Local) map[string]func(context.Context, Request) (Result, error) {
	t.Helper()
	s := httptest.NewTLSServer(Handler(l))
	t.Cleanup(s.Close)
	remote := &Remote{Client: s.Client(), Address: func(_ context.Context, node string) (string, error) {
		if node != "node-1" {
			return "", errors.New("no manager runs on " + node)
		}
		return s.Listener.Addr().String(), nil
	}}
	return map[string]func(context.Context, Request) (Result, error){
		"local": l.Run, "remote": func(ctx context.Context, r Request) (Result, error) {
			return remote.Run(ctx, "node-1", r)
		},
	}
}

// TestRun: arguments, environment, output, message and exit status.
func TestRun(t *testing.T) {
	t.Setenv("SECRET_OF_THE_MANAGER", "x")
	l := image(t, "a/b:1", `echo "$@"; echo "key=$AWS_ACCESS_KEY_ID,$SECRET_OF_THE_MANAGER" >&2; exit 7`)
	for name, run := range ways(t, l) {
		r, err := run(t.Context(), Request{Image: "a/b:1", Volume: "v", Engine: "v-e-0", Address: "1.2.3.4:5",
			Verb:        []string{"snapshots", "create", "--", "--help"},
			Environment: map[string]string{"AWS_ACCESS_KEY_ID": "k"}})
		if err != nil || r.Status != 7 || r.Message != "key=k,\n" ||
			string(r.Output) != "--volume-name v --engine-instance-name v-e-0 --url 1.2.3.4:5 snapshots create -- --help\n" {
			t.Errorf("%s: %+v %v", name, r, err)
		}
	}
}

// TestRefused is the table of what does not run.
func TestRefused(t *testing.T) {
	l := image(t, "i", "echo ran")
	for _, row := range []struct {
		r    Request
		want error
	}{
		{Request{Image: "i"}, ErrInvalid},
		{Request{Image: "i", Verb: []string{"controller", "v"}}, ErrInvalid},
		{Request{Image: "i", Verb: []string{"--debug", "replica", "/"}}, ErrInvalid},
		{Request{Image: "i", Verb: []string{"install"}}, ErrInvalid},
		{Request{Verb: []string{"info"}}, ErrInvalid},
		{Request{Image: "..", Verb: []string{"info"}}, ErrInvalid},
		{Request{Image: "i", Verb: []string{"info"}, Environment: map[string]string{"LD_PRELOAD": "x"}}, ErrInvalid},
		{Request{Image: "other", Verb: []string{"info"}}, ErrNoBinary},
		{Request{Image: "../../../bin", Verb: []string{"info"}}, ErrNoBinary},
	} {
		for name, run := range ways(t, l) {
			if out, err := run(t.Context(), row.r); !errors.Is(err, row.want) {
				t.Errorf("%s: %+v: %+v %v, want %v", name, row.r, out, err, row.want)
			}
		}
	}
}

// TestBounds: output, message, time and number.
func TestBounds(t *testing.T) {
	for name, run := range ways(t, image(t, "i", `head -c 5000000 /dev/zero`)) {
		if _, err := run(t.Context(), Request{Image: "i", Verb: []string{"info"}}); !errors.Is(err, ErrOutput) {
			t.Errorf("%s: 5 MB of output: %v", name, err)
		}
	}
	for name, run := range ways(t, image(t, "i", `head -c 1000000 /dev/zero >&2; echo the end >&2`)) {
		r, err := run(t.Context(), Request{Image: "i", Verb: []string{"info"}})
		if err != nil || len(r.Message) > maxMessageBytes || !strings.HasSuffix(r.Message, "the end\n") {
			t.Errorf("%s: %d bytes of message, %v", name, len(r.Message), err)
		}
	}
	// The script leaves its own number and becomes what waits, so that the test sees it end.
	mark := filepath.Join(t.TempDir(), "pid")
	slow := image(t, "i", `echo $$ >`+mark+`.part; mv `+mark+`.part `+mark+`; exec sleep 600`)
	for name, run := range ways(t, slow) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := run(ctx, Request{Image: "i", Verb: []string{"add-replica", "a"}})
			ended <- err
		}()
		var pid string
		wait.Until(t, name+" starts", func() bool {
			p, err := os.ReadFile(mark)
			pid = strings.TrimSpace(string(p))
			return err == nil
		})
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		wait.Until(t, name+": the binary ends with its caller", func() bool {
			_, err := os.Stat("/proc/" + pid)
			return os.IsNotExist(err)
		})
		if err := os.Remove(mark); err != nil {
			t.Fatal(err)
		}
	}
	for range maxRunning {
		slow.running <- struct{}{}
	}
	for name, run := range ways(t, slow) {
		if _, err := run(t.Context(), Request{Image: "i", Verb: []string{"info"}}); !errors.Is(err, ErrBusy) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestStrangers: a manager that does not answer as one.
func TestStrangers(t *testing.T) {
	for _, h := range []http.HandlerFunc{
		func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "who are you", http.StatusForbidden) },
	} {
		s := httptest.NewTLSServer(h)
		m := &Remote{Client: s.Client(), Address: func(context.Context, string) (string, error) {
			return s.Listener.Addr().String(), nil
		}}
		if _, err := m.Run(t.Context(), "n", Request{Image: "i", Verb: []string{"info"}}); err == nil ||
			!strings.Contains(err.Error(), "node n") {
			t.Errorf("%v", err)
		}
		s.Close()
	}
}
