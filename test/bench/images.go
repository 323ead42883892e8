package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"ankole.storage/test/rig"
)

// imageBench measures how an image is downloaded.
type imageBench struct {
	cfg  config
	v    *rig.Volume
	host *rig.Host
	web  *http.Client
	dir  string
	url  string
	jobs jobs
}

// images measures a data source that downloads an image, and in the same rounds curl that downloads
// it and sha512sum of the file. The server is this process, on a network of namespaces.
func images(ctx context.Context, cfg config, t *stand) error {
	began, load := time.Now().UTC(), loadAverage()
	program, err := rig.Build("backing-image-manager")
	if err == nil {
		err = os.Setenv("ANKOLE_BIN", filepath.Dir(program)) // where package rig finds it
	}
	if err != nil {
		return err
	}
	v, err := rig.Open(t, rig.Config{Size: mib, StorageNetwork: true})
	if err != nil {
		return err
	}
	b := &imageBench{cfg: cfg, v: v, host: v.NewHost("downloads"), jobs: jobs{results: map[string][]job{}},
		web: &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return v.Connect(ctx, address) }}}}
	if b.dir, err = os.MkdirTemp(cfg.dir, "bench-image-"); err != nil {
		return err
	}
	t.Cleanup(func() { _ = os.RemoveAll(b.dir) })
	if err := b.serve(t); err != nil {
		return err
	}
	for round := range cfg.rounds {
		for k := range 3 { // who is first changes with the round
			do := []func(context.Context) error{b.curl, b.sum, func(ctx context.Context) error { return b.download(ctx, round) }}
			if err := do[(k+round)%3](ctx); err != nil {
				return err
			}
		}
	}
	text := fmt.Sprintf("%s\nDownloads of an image of %d MiB, medians of %d rounds by turns.\n\n%s\n", machine(began, load),
		cfg.size/mib, cfg.rounds, b.jobs.table("curl"))
	fmt.Print(text)
	return keep(cfg, began, ".md", text)
}

// serve makes an image that cannot be compressed, and serves it.
func (b *imageBench) serve(t *stand) error {
	served := filepath.Join(b.dir, "served")
	if err := os.Mkdir(served, 0o700); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(served, "image"))
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.CopyN(f, rand.NewChaCha8([32]byte{1}), b.cfg.size); err != nil {
		return err
	}
	l, err := b.v.Listen()
	if err != nil {
		return err
	}
	s := &http.Server{Handler: http.FileServer(http.Dir(served)), ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(l) }() // until it is closed
	t.Cleanup(func() { _ = s.Close() })
	b.url = "http://" + l.Addr().String() + "/image"
	return nil
}

// run runs a program on the host, and notes what it took.
func (b *imageBench) run(ctx context.Context, name, program string, args ...string) error {
	c := exec.CommandContext(ctx, program, args...)
	began := time.Now()
	if err := b.host.Exec(c); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	usage, _ := c.ProcessState.SysUsage().(*syscall.Rusage)
	b.jobs.note(job{name: name, of: b.cfg.size, took: time.Since(began), memory: usage.Maxrss << 10,
		cpu: c.ProcessState.UserTime() + c.ProcessState.SystemTime()})
	return nil
}

func (b *imageBench) curl(ctx context.Context) error {
	out := filepath.Join(b.dir, "curl")
	defer os.Remove(out)
	return b.run(ctx, "curl, with sync", "sh", "-c", fmt.Sprintf("curl -sSf -o '%s' '%s' && sync '%s'", out, b.url, out))
}

func (b *imageBench) sum(ctx context.Context) error {
	return b.run(ctx, "sha512sum of the file", "sha512sum", filepath.Join(b.dir, "served", "image"))
}

// download has a data source download the image.
func (b *imageBench) download(ctx context.Context, round int) error {
	root := filepath.Join(b.dir, "disk")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(root)
	began := time.Now()
	o := b.host.Run(fmt.Sprintf("download-%d", round), "backing-image-manager", "data-source", "--allow-plaintext",
		"a measurement", "--listen", b.host.Addr+":8000", "--sync-listen", b.host.Addr+":8001", "--disk-root", root,
		"--name", "image", "--uuid", "0a1b2c3d", "--source-type", "download", "--parameters", "url="+b.url)
	defer o.Kill()
	j := job{name: "data source", of: b.cfg.size}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for state := ""; state != "ready-for-transfer"; <-tick.C {
		var message string
		state, message = b.state(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		if state == "failed" {
			return fmt.Errorf("the download has failed: %s", message)
		}
		j.took = time.Since(began)
	}
	var err error
	if j.cpu, err = cpuOf(o.Pid()); err != nil {
		return err
	}
	if j.memory, err = pss(o.Pid()); err != nil {
		return err
	}
	b.jobs.note(j)
	return nil
}

// state is what the data source says; nothing before it answers.
func (b *imageBench) state(ctx context.Context) (state, message string) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.host.Addr+":8000/v1/file", http.NoBody)
	if err != nil {
		return "", err.Error()
	}
	a, err := b.web.Do(q)
	if err != nil {
		return "", err.Error()
	}
	defer a.Body.Close()
	var s struct{ State, Message string }
	if err := json.NewDecoder(a.Body).Decode(&s); err != nil {
		return "", err.Error()
	}
	return strings.TrimSpace(s.State), s.Message
}
