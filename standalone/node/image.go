package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ErrNoImage means that an image's directory does not exist.
var ErrNoImage = errors.New("image directory not found")

// Images finds the directory that stands for a container image. The first directory of the list
// that has the image wins.
type Images []string

// Image is the content of a directory that stands for a container image:
//
//	image.json   entrypoint, cmd and env as in an OCI image's configuration
//	bin/         programs, searched before PATH
type Image struct {
	Dir        string   `json:"-"`
	Entrypoint []string `json:"entrypoint"`
	Cmd        []string `json:"cmd"`
	Env        []string `json:"env"` // KEY=value
}

// Canonical is an image name as a directory name: "ankole/engine:dev" is "ankole-engine-dev".
func Canonical(image string) string {
	return strings.NewReplacer("/", "-", ":", "-", "@", "-").Replace(image)
}

// Find reads the image of a name.
func (im Images) Find(name string) (*Image, error) {
	var tried []string
	for _, base := range im {
		dir := filepath.Join(base, Canonical(name))
		data, err := os.ReadFile(filepath.Join(dir, "image.json"))
		if errors.Is(err, os.ErrNotExist) {
			tried = append(tried, dir)
			continue
		}
		img := &Image{Dir: dir}
		if err == nil {
			err = json.Unmarshal(data, img)
		}
		if err != nil {
			return nil, fmt.Errorf("image %q: %s: %w", name, filepath.Join(dir, "image.json"), err)
		}
		return img, nil
	}
	return nil, fmt.Errorf("%w: image %q stands for a directory with an image.json and a bin/, expected at %s",
		ErrNoImage, name, strings.Join(tried, " or "))
}

// Lookup finds the executable for argv[0]: a plain name in the image's bin/ and then in PATH, an
// absolute path below the image and then on this machine.
func (i *Image) Lookup(program, path string) (string, error) {
	if strings.Contains(program, "/") {
		for _, p := range []string{filepath.Join(i.Dir, program), program} {
			if executable(p) {
				return p, nil
			}
		}
		return "", fmt.Errorf("exec: %q: no such file or directory in image %s", program, i.Dir)
	}
	for _, dir := range append([]string{filepath.Join(i.Dir, "bin")}, filepath.SplitList(path)...) {
		if p := filepath.Join(dir, program); executable(p) {
			return p, nil
		}
	}
	return "", fmt.Errorf("exec: %q: executable file not found in %s or $PATH", program, filepath.Join(i.Dir, "bin"))
}

func executable(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0
}
