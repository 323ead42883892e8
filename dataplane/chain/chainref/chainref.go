// Package chainref reads replica directories a second time: it is written from the description of
// the on-disk format (data format 1, docs/design/format-replica.md) and shares no code with package
// chain, so that tests can say what any other engine would find in a directory, and that what we
// write keeps to the format: every file has a name the format knows, every JSON file the right keys
// and types on one line, every parent exists, sizes fit, and a checksum that claims to hold does.
//
// It reads everything the slow way and is for tests only.
package chainref

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"ankole.storage/dataplane/disk"
)

// Options say what is let through.
type Options struct {
	// Foreign directories were written by another engine: layers' metadata may lack keys, and there
	// may be strays.
	Foreign bool
	// Strays are legal after a crash, until the next open.
	Strays bool
}

// Replica is what a directory says.
type Replica struct {
	fs  disk.Meta
	dir string
	// Size of the volume in bytes.
	Size int64
	// Head is the head's image file.
	Head string
	// Dirty and Rebuilding are volume.meta's.
	Dirty, Rebuilding bool
	// Layers has every image with metadata, of all branches, by file name.
	Layers map[string]Layer
	// key binds the whiteouts; without it there are none.
	key string
	// Chain is the live chain, bottom first, the head last.
	Chain []string
}

// Layer is one image and what its metadata says.
type Layer struct {
	Parent               string
	Removed, UserCreated bool
	Created              string
	Labels               map[string]string
	// Whiteouts names the file that says which blocks of the layers below it hides.
	Whiteouts string
	// Size is the apparent size in bytes.
	Size  int64
	inode uint64
}

// maxDisks bounds the live chain.
const maxDisks = 250

var (
	headName = regexp.MustCompile(`^volume-head-[0-9]{3}\.img$`)
	snapName = regexp.MustCompile(`^volume-snap-[^/]+\.img$`)
	ours     = regexp.MustCompile(`^ankole\.(member|dirty|reserve|absent|meta|whiteouts-[0-9a-f]{16})$`)
)

// Read reads a directory and checks it against the format.
func Read(fs disk.Meta, dir string, o Options) (*Replica, error) {
	r := &Replica{fs: fs, dir: dir, Layers: map[string]Layer{}}
	parent, err := r.readVolume()
	if err != nil {
		return nil, err
	}
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := r.readFile(name, names, o); err != nil {
			return nil, err
		}
	}
	if err := r.follow(); err != nil {
		return nil, err
	}
	if got := r.Layers[r.Head].Parent; got != parent {
		return nil, fmt.Errorf("volume.meta has Parent %q, the head's .meta %q", parent, got)
	}
	if err := r.checkFiles(); err != nil {
		return nil, err
	}
	if err := r.checkWhiteouts(names, o); err != nil {
		return nil, err
	}
	return r, r.checkChecksums(names)
}

func (r *Replica) readVolume() (parent string, err error) {
	f, err := r.object("volume.meta")
	if err != nil {
		return "", err
	}
	var sector int64
	var text, backing string
	var encrypted bool
	f.take("Size", &r.Size, true)
	f.take("Head", &r.Head, true)
	f.take("Dirty", &r.Dirty, true)
	f.take("Rebuilding", &r.Rebuilding, true)
	f.take("Error", &text, true)
	f.take("Parent", &parent, true)
	f.take("SectorSize", &sector, true)
	f.take("BackingFilePath", &backing, true)
	f.take("Encrypted", &encrypted, false)
	f.take("AnkoleWhiteouts", &r.key, false)
	if err := f.done(); err != nil {
		return "", err
	}
	if sector != 512 || r.Size <= 0 || r.Size%4096 != 0 || !headName.MatchString(r.Head) || text != "" {
		return "", fmt.Errorf("volume.meta has Size %d, SectorSize %d, Head %q, Error %q", r.Size, sector, r.Head, text)
	}
	return parent, nil
}

// readFile checks one name and reads what it is for.
func (r *Replica) readFile(name string, names []string, o Options) error {
	image, kind := name, ""
	for _, k := range []string{".meta", ".checksum", ".sums"} {
		if i, ok := strings.CutSuffix(name, k); ok {
			image, kind = i, k
		}
	}
	isHead, isSnap := headName.MatchString(image), snapName.MatchString(image)
	loose := o.Foreign || o.Strays
	switch {
	case name == "volume.meta" || ours.MatchString(name):
		return nil
	case name == "revision.counter":
		return r.checkCounter(name)
	case loose && strings.HasSuffix(name, ".tmp"), strings.HasSuffix(name, ".replaced"):
		return nil
	case !isHead && !isSnap:
		return fmt.Errorf("%s is no file of the format", name)
	case isHead && image != r.Head && !loose:
		return fmt.Errorf("stray head %s", name)
	case isHead && kind != "" && kind != ".meta":
		return fmt.Errorf("%s: only snapshots have that", name)
	case kind == ".meta":
		return r.readLayer(name, image, o)
	case !slices.Contains(names, image+".meta") && !loose:
		return fmt.Errorf("%s has no metadata", name)
	case kind != "" && !slices.Contains(names, image) && !loose:
		return fmt.Errorf("%s has no image", name)
	}
	return nil
}

func (r *Replica) readLayer(name, image string, o Options) error {
	f, err := r.object(name)
	if err != nil {
		return err
	}
	var l Layer
	var informational string
	f.take("Name", &informational, !o.Foreign)
	f.take("Parent", &l.Parent, true)
	f.take("Removed", &l.Removed, !o.Foreign)
	f.take("UserCreated", &l.UserCreated, !o.Foreign)
	f.take("Created", &l.Created, !o.Foreign)
	f.take("Labels", &l.Labels, !o.Foreign)
	f.take("AnkoleWhiteouts", &l.Whiteouts, false)
	if err := f.done(); err != nil {
		return err
	}
	info, err := r.fs.Stat(path.Join(r.dir, image))
	if err != nil {
		return err
	}
	l.Size, l.inode = info.Size, info.Inode
	if l.Parent != "" && !snapName.MatchString(l.Parent) {
		return fmt.Errorf("%s has the parent %q", name, l.Parent)
	}
	r.Layers[image] = l
	return nil
}

// follow finds the live chain, and that every parent exists.
func (r *Replica) follow() error {
	for name, l := range r.Layers {
		if _, ok := r.Layers[l.Parent]; l.Parent != "" && !ok {
			return fmt.Errorf("%s has the parent %s, which is not there", name, l.Parent)
		}
	}
	for name := r.Head; name != ""; name = r.Layers[name].Parent {
		if _, ok := r.Layers[name]; !ok {
			return fmt.Errorf("%s.meta is missing", name)
		}
		if r.Chain = append(r.Chain, name); len(r.Chain) > maxDisks {
			return fmt.Errorf("the chain is longer than %d files, or a ring", maxDisks)
		}
	}
	slices.Reverse(r.Chain)
	return nil
}

func (r *Replica) checkFiles() error {
	inodes := map[uint64]string{}
	for _, name := range r.Chain {
		l := r.Layers[name]
		// A purge that was interrupted at its last step leaves a removed layer and the one above it
		// as one file.
		if other := inodes[l.inode]; other != "" && (other != l.Parent || !r.Layers[other].Removed) {
			return fmt.Errorf("%s and %s of the chain are one file", name, other)
		}
		inodes[l.inode] = name
		if l.Size > r.Size || name == r.Head && l.Size != r.Size {
			return fmt.Errorf("%s has %d bytes in a volume of %d", name, l.Size, r.Size)
		}
	}
	return nil
}

// checkCounter wants decimal digits, padded with NUL to 4096 bytes.
func (r *Replica) checkCounter(name string) error {
	data, err := r.fs.ReadFile(path.Join(r.dir, name), 4096)
	if err != nil {
		return err
	}
	if !regexp.MustCompile(`^[0-9]+\x00*$`).Match(data) || len(data) != 4096 {
		return fmt.Errorf("%s of %d bytes holds %.20q", name, len(data), data)
	}
	return nil
}

// object is a JSON file while its keys are taken.
type object struct {
	name string
	keys map[string]json.RawMessage
	err  error
}

func (r *Replica) object(name string) (*object, error) {
	data, err := r.fs.ReadFile(path.Join(r.dir, name), 1<<20)
	if err != nil {
		return nil, err
	}
	if strings.Count(string(data), "\n") != 1 || !strings.HasSuffix(string(data), "\n") {
		return nil, fmt.Errorf("%s is not one line: %q", name, data)
	}
	o := &object{name: name}
	if err := json.Unmarshal(data, &o.keys); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return o, nil
}

// take decodes a key of the given type.
func (o *object) take(key string, v any, must bool) {
	raw, ok := o.keys[key]
	delete(o.keys, key)
	switch {
	case !ok && must && o.err == nil:
		o.err = fmt.Errorf("%s lacks %s", o.name, key)
	case ok && o.err == nil:
		if err := json.Unmarshal(raw, v); err != nil {
			o.err = fmt.Errorf("%s: %s: %w", o.name, key, err)
		}
	}
}

// done says what was wrong. Keys of ours are named so that no other engine can mean them.
func (o *object) done() error {
	for key := range o.keys {
		if o.err == nil && !strings.HasPrefix(key, "Ankole") {
			o.err = fmt.Errorf("%s has the unknown key %q", o.name, key)
		}
	}
	return o.err
}
