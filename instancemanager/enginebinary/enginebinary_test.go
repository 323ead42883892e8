package enginebinary

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	enginebinaryv1 "ankole.storage/api/rpc/enginebinary/v1"
	"ankole.storage/instancemanager/server"
	"ankole.storage/test/wait"
)

type (
	request = enginebinaryv1.RunRequest
	// served is a server of one image "i", whose binary is a shell script, and a client of it.
	served struct {
		*Server
		client enginebinaryv1.EngineBinaryClient
	}
)

const binary = "/engine-binaries/i/longhorn"

func serve(t *testing.T, script string) *served {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, binary)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	s := New([]string{"/engine-binaries", "/other"}, func(path string) string { return filepath.Join(dir, path) })
	l, err := server.Listen(t.Context(), "127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	g := server.New(nil, s.Register)
	go func() { _ = g.Serve(l) }() // ended by Stop
	t.Cleanup(g.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the test is over
	return &served{s, enginebinaryv1.NewEngineBinaryClient(conn)}
}

// run asks through the server.
func (s *served) run(t *testing.T, ctx context.Context, r *request) (*enginebinaryv1.RunResponse, error) {
	t.Helper()
	return s.client.Run(ctx, r, grpc.MaxCallRecvMsgSize(8<<20))
}

// TestRun: arguments, environment, output, message and exit status.
func TestRun(t *testing.T) {
	t.Setenv("SECRET_OF_THE_MANAGER", "x")
	s := serve(t, `echo "$@"; echo "key=$AWS_ACCESS_KEY_ID,$BACKUP_ENCRYPTION_KEY,$SECRET_OF_THE_MANAGER" >&2; exit 7`)
	r, err := s.run(t, t.Context(), &request{Binary: binary, Volume: "v", Engine: "v-e-0", Address: "1.2.3.4:5",
		Verb:        []string{"snapshots", "create", "--", "--help"},
		Environment: map[string]string{"AWS_ACCESS_KEY_ID": "k", "BACKUP_ENCRYPTION_KEY": "e"}})
	if err != nil || r.GetStatus() != 7 || r.GetMessage() != "key=k,e,\n" ||
		string(r.GetOutput()) != "--volume-name v --engine-instance-name v-e-0 --url 1.2.3.4:5 snapshots create -- --help\n" {
		t.Errorf("%+v %v", r, err)
	}
}

// TestRefused is the table of what does not run.
func TestRefused(t *testing.T) {
	s := serve(t, "echo ran")
	info := []string{"info"}
	for _, row := range []struct {
		r    *request
		want codes.Code
	}{
		{&request{Binary: binary}, codes.InvalidArgument},
		{&request{Binary: binary, Verb: []string{"controller", "v"}}, codes.InvalidArgument},
		{&request{Binary: binary, Verb: []string{"--debug", "replica", "/"}}, codes.InvalidArgument},
		{&request{Binary: binary, Verb: []string{"install"}}, codes.InvalidArgument},
		{&request{Binary: binary, Verb: info, Environment: map[string]string{"LD_PRELOAD": "x"}}, codes.InvalidArgument},
		{&request{Verb: info}, codes.InvalidArgument},
		{&request{Binary: "/bin/sh", Verb: info}, codes.InvalidArgument},
		{&request{Binary: "/engine-binaries/../bin/longhorn", Verb: info}, codes.InvalidArgument},
		{&request{Binary: "/engine-binaries/../longhorn", Verb: info}, codes.InvalidArgument},
		{&request{Binary: "/engine-binaries/a/b/longhorn", Verb: info}, codes.InvalidArgument},
		{&request{Binary: "engine-binaries/i/longhorn", Verb: info}, codes.InvalidArgument},
		{&request{Binary: "/engine-binaries/i\x00/longhorn", Verb: info}, codes.InvalidArgument},
		{&request{Binary: "/engine-binaries/other/longhorn", Verb: info}, codes.NotFound},
	} {
		if out, err := s.run(t, t.Context(), row.r); status.Code(err) != row.want {
			t.Errorf("%v: %v %v, want %v", row.r, out, err, row.want)
		}
	}
}

// TestBounds: output, message, time and number.
func TestBounds(t *testing.T) {
	order := func(verb ...string) *request { return &request{Binary: binary, Verb: verb} }
	s := serve(t, `head -c 5000000 /dev/zero`)
	if _, err := s.run(t, t.Context(), order("info")); status.Code(err) != codes.OutOfRange {
		t.Errorf("5 MB of output: %v", err)
	}
	s = serve(t, `head -c 4000000 /dev/zero; head -c 1000000 /dev/zero >&2; echo the end >&2`)
	r, err := s.run(t, t.Context(), order("info"))
	if m := r.GetMessage(); err != nil || len(r.GetOutput()) != 4000000 || len(m) > maxMessageBytes ||
		!strings.HasSuffix(m, "the end\n") {
		t.Errorf("%d bytes, %d of message, %v", len(r.GetOutput()), len(m), err)
	}
	// The script leaves its own number and becomes what waits, so that the test sees it end.
	mark := filepath.Join(t.TempDir(), "pid")
	slow := serve(t, `echo $$ >`+mark+`.part; mv `+mark+`.part `+mark+`; exec sleep 600`)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := slow.run(t, ctx, order("add-replica", "a"))
		ended <- err
	}()
	var pid string
	wait.Until(t, "the binary starts", func() bool {
		p, err := os.ReadFile(mark)
		pid = strings.TrimSpace(string(p))
		return err == nil
	})
	cancel()
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	wait.Until(t, "the binary ends with its caller", func() bool {
		_, err := os.Stat("/proc/" + pid)
		return os.IsNotExist(err)
	})
	wait.Until(t, "its place is free", func() bool { return len(slow.running) == 0 })
	for range maxRunning {
		slow.running <- struct{}{}
	}
	if _, err := slow.run(t, t.Context(), order("info")); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
}

// TestNewest: who names no image gets the one that was installed last.
func TestNewest(t *testing.T) {
	dir := t.TempDir()
	s := New([]string{"/engine-binaries", "/other"}, func(p string) string { return filepath.Join(dir, p) })
	if _, err := s.Newest(); status.Code(err) != codes.NotFound {
		t.Errorf("no image: %v", err)
	}
	for i, name := range []string{"/other/new/longhorn", "/engine-binaries/old/longhorn"} {
		file := filepath.Join(dir, name)
		at := time.Unix(int64(2000-i), 0)
		err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o755), os.Chtimes(file, at, at))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "other/empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Newest(); got != "/other/new/longhorn" || err != nil {
		t.Errorf("%s %v", got, err)
	}
}
