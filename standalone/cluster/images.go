package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"ankole.storage/standalone/node"
	"ankole.storage/standalone/statedir"
)

// builtIn lists the images that are made of the programs beside ours: the program's file, and the
// names under which Pods may call it.
var builtIn = []struct {
	image   func(*Config) string
	program string
	names   []string
}{
	{func(c *Config) string { return c.ManagerImage }, "manager", []string{"manager", "longhorn-manager"}},
	{func(c *Config) string { return c.EngineImage }, "engine", []string{"engine", "longhorn"}},
	{func(c *Config) string { return c.EngineImage + nextEngine }, "engine", []string{"engine", "longhorn"}},
	{func(c *Config) string {
		return c.InstanceManagerImage
	}, "instance-manager", []string{"instance-manager", "longhorn-instance-manager"}},
	{func(c *Config) string { return c.BackingImageManagerImage }, "backing-image-manager",
		[]string{"backing-image-manager"}},
}

// nextEngine is appended to the engine image's name for a second image of the same program: without
// it nobody could see an upgrade on a cluster that has one build.
const nextEngine = "-next"

// images returns where nodes look for images: the directory the user names, or else images/ beside
// the folder of our program; then one made of the built programs.
func (c *Config) images(d *statedir.Dir) (node.Images, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	bin := filepath.Dir(self)
	first := filepath.Join(filepath.Dir(bin), "images")
	if c.Images != "" {
		if first, err = filepath.Abs(c.Images); err != nil {
			return nil, fmt.Errorf("--images: %w", err)
		}
		if fi, err := os.Stat(first); err != nil || !fi.IsDir() {
			return nil, fmt.Errorf("%w: --images %s is not a directory", ErrConfig, c.Images)
		}
	}
	made := d.Path("images")
	for _, b := range builtIn {
		if err := makeImage(filepath.Join(made, node.Canonical(b.image(c))), filepath.Join(bin, b.program),
			b.names); err != nil {
			return nil, err
		}
	}
	return node.Images{first, made}, nil
}

// makeImage builds an image directory around one program, as links, so that a rebuilt program is
// taken up by the next container. A program that is not built has no image.
func makeImage(dir, program string, names []string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("image %s: %w", dir, err)
	}
	if _, err := os.Stat(program); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		return fmt.Errorf("image %s: %w", dir, err)
	}
	for _, n := range names {
		if err := os.Symlink(program, filepath.Join(dir, "bin", n)); err != nil {
			return fmt.Errorf("image %s: %w", dir, err)
		}
	}
	data, err := json.Marshal(node.Image{Entrypoint: []string{}, Cmd: names[:1], Env: []string{}})
	if err != nil {
		return fmt.Errorf("image %s: %w", dir, err)
	}
	return statedir.WriteFile(filepath.Join(dir, "image.json"), data, 0o644)
}
