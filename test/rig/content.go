package rig

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/chain/chainref"
	"ankole.storage/dataplane/disk/osdisk"
)

// LayerHash is the content of a volume as one file of its chain and everything below it show it.
type LayerHash struct {
	File string
	Sum  [sha256.Size]byte
}

// Content reads a replica directory, which may be in use as long as nothing is written, and returns
// the content at every layer of its chain that is not marked as removed, bottom first. It reads the
// files by itself, so that it shares no mistake with the replica.
func Content(dir string) ([]LayerHash, error) {
	var vm struct {
		Size       int64
		Head       string
		Rebuilding bool
		// AnkoleWhiteouts binds what the layers hide.
		AnkoleWhiteouts string
	}
	if err := readJSON(filepath.Join(dir, "volume.meta"), &vm); err != nil {
		return nil, err
	}
	if vm.Rebuilding {
		return nil, fmt.Errorf("%s: is being rebuilt", dir)
	}
	var files []string
	removed, hides := map[string]bool{}, map[string]string{}
	for f := vm.Head; f != ""; {
		files = append(files, f)
		var m struct {
			Parent  string
			Removed bool
			// AnkoleWhiteouts says what the layer hides of those below.
			AnkoleWhiteouts string
		}
		if err := readJSON(filepath.Join(dir, f+".meta"), &m); err != nil {
			return nil, err
		}
		removed[f], hides[f] = m.Removed, m.AnkoleWhiteouts
		if f = m.Parent; len(files) > maxLayers {
			return nil, fmt.Errorf("%s: the chain is a ring", dir)
		}
	}
	slices.Reverse(files)
	view, fs := make([]byte, vm.Size), osdisk.New(func(p string) string { return p })
	var out []LayerHash
	for _, f := range files {
		if err := chainref.Hide(fs, dir, vm.AnkoleWhiteouts, hides[f], view); err != nil {
			return nil, err
		}
		if err := overlay(view, filepath.Join(dir, f)); err != nil {
			return nil, err
		}
		if removed[f] {
			continue // a purge moves what is above into it, as far as it got
		}
		// The head's number counts the snapshots a replica has seen, which a rebuilt one has not.
		out = append(out, LayerHash{File: strings.TrimRight(f, "0123456789.img"), Sum: sha256.Sum256(view)})
		if f != vm.Head {
			out[len(out)-1].File = f
		}
	}
	return out, nil
}

// maxLayers is more than a chain can have.
const maxLayers = 300

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// overlay puts the data of a sparse file over view.
func overlay(view []byte, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for at := int64(0); ; {
		from, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if at, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if from >= int64(len(view)) {
			return nil
		}
		if _, err := f.ReadAt(view[from:min(at, int64(len(view)))], from); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
}

// Compare returns an error unless all replicas hold the same at every layer. Nothing may be written
// meanwhile.
func Compare(replicas ...*Replica) error {
	var first []LayerHash
	for i, r := range replicas {
		c, err := Content(r.Dir)
		if err != nil {
			return err
		}
		if i == 0 {
			first = c
			continue
		}
		if len(c) != len(first) {
			return fmt.Errorf("replica %s has %d layers, %s has %d", r.Name, len(c), replicas[0].Name, len(first))
		}
		for k := range c {
			if c[k] != first[k] {
				return fmt.Errorf("replicas %s and %s differ at layer %s (%s)", replicas[0].Name, r.Name, first[k].File, c[k].File)
			}
		}
	}
	return nil
}
