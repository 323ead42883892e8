// Command images packs container images without a container engine.
//
// It reads a Dockerfile whose targets begin FROM scratch and copy files, and writes for each target
// an archive that docker, podman, containerd and kind load, a list of what is in it, and its
// digest. The same files give the same digest, on any machine and at any time.
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// refName is the label by which a Dockerfile gives an image its full name:
// https://github.com/opencontainers/image-spec/blob/main/annotations.md.
const refName = "org.opencontainers.image.ref.name"

type options struct {
	dockerfile, context, out string
	prefix, tag              string
}

func main() {
	var o options
	flag.StringVar(&o.dockerfile, "f", "deploy/images/Dockerfile", "the Dockerfile")
	flag.StringVar(&o.context, "context", ".", "folder that COPY copies from")
	flag.StringVar(&o.out, "out", "bin/images", "folder of the archives")
	flag.StringVar(&o.prefix, "prefix", "ankole/", "what precedes a target's name in the image's")
	flag.StringVar(&o.tag, "tag", "dev", "tag of the images")
	flag.Parse()
	if err := run(o, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

// run packs the targets that are named, or all.
func run(o options, names []string, out io.Writer) error {
	text, err := os.ReadFile(o.dockerfile)
	if err != nil {
		return err
	}
	targets, err := parse(string(text))
	if err != nil {
		return err
	}
	for _, n := range names {
		if !slices.ContainsFunc(targets, func(t *target) bool { return t.name == n }) {
			return fmt.Errorf("%s has no target %s", o.dockerfile, n)
		}
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	for _, t := range targets {
		if len(names) > 0 && !slices.Contains(names, t.name) {
			continue
		}
		if err := o.pack(t, out); err != nil {
			return fmt.Errorf("image %s: %w", t.name, err)
		}
	}
	return nil
}

// pack writes one image.
func (o options) pack(t *target, out io.Writer) error {
	files, err := gather(o.context, t)
	if err != nil {
		return err
	}
	image, err := build(t, files)
	if err != nil {
		return err
	}
	list, err := contents(o.context, t, files)
	if err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	full := cmp.Or(t.labels[refName], o.prefix+t.name+":"+o.tag)
	tag, err := name.NewTag(full)
	if err != nil {
		return err
	}
	file := filepath.Join(o.out, t.name)
	if err := tarball.WriteToFile(file+".tar.tmp", tag, image); err != nil {
		return err
	}
	if err := os.WriteFile(file+".contents.txt", []byte(list), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(file+".digest", []byte(digest.String()+"\n"), 0o644); err != nil {
		return err
	}
	if err := os.Rename(file+".tar.tmp", file+".tar"); err != nil {
		return err
	}
	info, err := os.Stat(file + ".tar")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%-32s %5.1f MB  %s\n", full, float64(info.Size())/1e6, digest)
	return err
}

// build makes an image of one layer.
func build(t *target, files tree) (v1.Image, error) {
	plain, err := files.layer()
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(plain)), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithCompressionLevel(gzip.BestSpeed),
		tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, withConfig(image, t))
}

func withConfig(image v1.Image, t *target) *v1.ConfigFile {
	c, err := image.ConfigFile()
	if err != nil {
		panic(err) // an image in memory has one
	}
	c = c.DeepCopy()
	c.OS, c.Architecture, c.Created = "linux", runtime.GOARCH, v1.Time{Time: time.Unix(0, 0).UTC()}
	c.Config = v1.Config{Env: t.env, Labels: t.labels, User: t.user, Entrypoint: t.entrypoint}
	return c
}
