package node

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/exec"

	"ankole.storage/csi/request"
	"ankole.storage/host/luks"
	"ankole.storage/test/lack"
)

// realVariable of the environment is set where tests of encrypted volumes shall use the kernel's
// device-mapper and the real cryptsetup: in the virtual machine of test/vm.
const realVariable = "ANKOLE_CRYPTSETUP"

// standIn stands for cryptsetup and device-mapper, which the kernel of a test machine may not have:
// a mapper device is a loop device on the volume's device, behind the header. Nothing is encrypted.
// sysfs is a folder.
type standIn struct {
	exec.Interface
	bed *bed
	// calls are the arguments of each call.
	calls [][]string
	open  map[string]*opened // by volume
	aside []*opened
	// dumped is what happens after luksDump of a copy, if anything.
	dumped func()
}

// opened is a mapper device: its loop device, and the hold on the device below.
type opened struct {
	loop, dir string
	hold      *os.File
}

// newEncryptedBed is a bed whose volume has a device with room for a header and sizeBytes.
func newEncryptedBed(t *testing.T, sizeBytes int64) *bed {
	t.Helper()
	b := newBed(t, sizeBytes+16*mib)
	b.context = map[string]string{request.ParamEncrypted: "true"}
	b.secrets = map[string]string{luks.SecretValue: "a key of many words", luks.SecretPBKDF: "pbkdf2",
		luks.SecretIterations: "1000"}
	if os.Getenv(realVariable) != "" {
		if _, err := osexec.LookPath("cryptsetup"); err != nil {
			lack.Skip(t, "cryptsetup is not installed")
		}
		b.patience = 2 * time.Minute // its processor is emulated
		b.restart()
		return b
	}
	s := &standIn{Interface: exec.New(), bed: b, open: map[string]*opened{}}
	sys := t.TempDir()
	b.fitted = func(n *Server) { n.run, n.sys, n.aside = s, sys, s.setAside }
	b.restart()
	t.Cleanup(func() {
		for _, o := range append(s.aside, func() (all []*opened) {
			for _, o := range s.open {
				all = append(all, o)
			}
			return all
		}()...) {
			o.hold.Close()
			_ = osexec.Command("losetup", "--detach", o.loop).Run() // it goes with its last user
		}
	})
	return b
}

// formats counts how often a LUKS header was made.
func (s *standIn) formats() (n int) {
	for _, c := range s.calls {
		if c[0] == "luksFormat" {
			n++
		}
	}
	return n
}

// Command implements exec.Interface.
func (s *standIn) Command(name string, args ...string) exec.Cmd {
	if name != "cryptsetup" {
		return s.Interface.Command(name, args...)
	}
	s.calls = append(s.calls, args)
	return &standInCall{s: s, args: args}
}

// standInCall is a call of cryptsetup.
type standInCall struct {
	exec.Cmd
	s     *standIn
	args  []string
	input io.Reader
}

func (c *standInCall) SetStdin(in io.Reader) { c.input = in }

// exitStatus is that of a program that has failed.
type exitStatus int

func (e exitStatus) Error() string   { return fmt.Sprintf("exit status %d", int(e)) }
func (e exitStatus) String() string  { return e.Error() }
func (e exitStatus) Exited() bool    { return true }
func (e exitStatus) ExitStatus() int { return int(e) }

// CombinedOutput does what the arguments ask for.
func (c *standInCall) CombinedOutput() ([]byte, error) {
	input, err := io.ReadAll(c.input)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(input)
	key := hex.EncodeToString(sum[:])
	last := c.args[len(c.args)-1]
	switch c.args[0] {
	case "luksFormat":
		return c.s.format(last, key, c.args)
	case "luksAddKey":
		return c.s.addSlot(c.args[len(c.args)-2])
	case "luksErase":
		return c.s.write(last, keyAt, make([]byte, 2*len(key))) // and the slots
	case "luksDump":
		return c.s.dump(last)
	case "open":
		return c.s.connect(c.args[len(c.args)-2], last, c.header(), key)
	case "close":
		return c.s.close(last)
	case "resize":
		return c.s.resize(last, c.header(), key)
	}
	return nil, fmt.Errorf("cryptsetup %q", c.args)
}

// header is the file with the header that a call is given.
func (c *standInCall) header() string { return c.args[slices.Index(c.args, "--header")+1] }

// Where the stand-in has the key's sum, in the header, and what it says of itself: the number of
// key slots, and options of luksFormat.
const (
	keyAt     = 4096
	slotsAt   = keyAt + 64
	optionsAt = keyAt + 128
	lastBytes = 8192
)

func (s *standIn) write(device string, at int64, p []byte) ([]byte, error) {
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	_, err = f.WriteAt(p, at)
	return nil, errors.Join(err, f.Sync(), f.Close())
}

func (s *standIn) format(device, key string, args []string) ([]byte, error) {
	header := make([]byte, lastBytes)
	copy(header, "LUKS\xba\xbe\x00\x02")
	copy(header[keyAt:], key)
	header[slotsAt] = 1
	copy(header[optionsAt:], strings.Join(args, "\n"))
	return s.write(device, 0, header)
}

// addSlot adds a key slot; what opens it is not kept.
func (s *standIn) addSlot(device string) ([]byte, error) {
	h, err := s.header(device)
	if err != nil {
		return nil, err
	}
	return s.write(device, slotsAt, []byte{h[slotsAt] + 1})
}

// header of a device or a file.
func (s *standIn) header(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := make([]byte, lastBytes)
	if _, err := f.ReadAt(p, 0); err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(p, []byte("LUKS\xba\xbe\x00\x02")) {
		return nil, exitStatus(1)
	}
	return p, nil
}

// key that a header has; empty: its keys are erased.
func (s *standIn) key(path string) (string, error) {
	h, err := s.header(path)
	if err != nil {
		return "", err
	}
	return string(bytes.TrimRight(h[keyAt:keyAt+64], "\x00")), nil
}

// fits fails unless a key is that of a device.
func (s *standIn) fits(device, key string) error {
	has, err := s.key(device)
	if err == nil && has != key {
		err = exitStatus(cryptsetupNoPermission)
	}
	return err
}

func (s *standIn) dump(path string) ([]byte, error) {
	h, err := s.header(path)
	if err != nil {
		return nil, err
	}
	options := map[string]string{}
	for _, o := range strings.Split(string(bytes.TrimRight(h[optionsAt:], "\x00")), "\n") {
		name, value, _ := strings.Cut(o, "=")
		options[name] = value
	}
	cipher := options["--cipher"]
	bits, err := strconv.Atoi(options["--key-size"])
	iterations := cmp.Or(options["--pbkdf-force-iterations"], "4")
	if s.dumped != nil && strings.HasPrefix(path, "/proc/") {
		defer s.dumped()
	}
	slots := map[string]any{}
	for i := range int(h[slotsAt]) {
		slots[strconv.Itoa(i)] = map[string]any{"type": "luks2", "key_size": bits / 8,
			"area": map[string]any{"encryption": cipher, "key_size": bits / 8},
			"kdf": map[string]any{"type": options["--pbkdf"], "iterations": json.Number(iterations),
				"time": json.Number(iterations), "memory": json.Number(cmp.Or(options["--pbkdf-memory"], "0"))}}
	}
	out, failed := json.Marshal(map[string]any{"keyslots": slots, "segments": map[string]any{"0": map[string]any{
		"type": "crypt", "offset": "16777216", "size": "dynamic", "iv_tweak": "0", "encryption": cipher}}})
	return out, errors.Join(err, failed)
}

func (s *standIn) connect(path, volume, header, key string) ([]byte, error) {
	if s.open[volume] != nil {
		return nil, exitStatus(cryptsetupBusy)
	}
	for _, o := range s.aside { // its UUID, which has the volume's name in it, stays
		if used, err := (device{path: o.loop}).held(); err != nil || used {
			return nil, cmp.Or(err, error(exitStatus(4)))
		}
	}
	if err := s.fits(header, key); err != nil {
		return nil, err
	}
	hold, err := claim(path)
	if err != nil {
		return nil, err
	}
	loop := strings.TrimSpace(s.bed.command("losetup", "--find", "--show", "--offset", "16777216", path))
	o := &opened{loop: loop, hold: hold, dir: filepath.Join(s.bed.sys, "block", "dm-"+filepath.Base(loop)[4:])}
	s.open[volume] = o
	s.bed.must(s.describe(o, volume))
	return nil, nil
}

// claim opens a device for nobody else. A program that another test is starting has a copy of what
// this process has open, a claim too, until it runs: what is busy for that long is not in use.
func claim(path string) (hold *os.File, err error) {
	// What it returns says no more than err does.
	_ = wait.ExponentialBackoff(busy, func() (bool, error) {
		hold, err = os.OpenFile(path, os.O_RDONLY|os.O_EXCL, 0)
		return !errors.Is(err, unix.EBUSY), nil
	})
	if errors.Is(err, unix.EBUSY) {
		err = exitStatus(cryptsetupBusy)
	}
	return hold, err
}

// describe puts the mapper device where the kernel would have it.
func (s *standIn) describe(o *opened, volume string) error {
	var own, mapper unix.Stat_t
	slave := filepath.Join(o.dir, "slaves/"+filepath.Base(s.bed.loop))
	errs := []error{unix.Stat(s.bed.loop, &own), unix.Stat(o.loop, &mapper),
		unix.Mknod(filepath.Join(mappers, volume), unix.S_IFBLK|0o600, int(mapper.Rdev)),
		os.MkdirAll(filepath.Join(o.dir, "dm"), 0o700), os.MkdirAll(filepath.Join(slave, "loop"), 0o700)}
	holders := filepath.Join(s.bed.sys, "dev/block", deviceText(own.Rdev), "holders")
	errs = append(errs, os.MkdirAll(holders, 0o700), os.Symlink(o.dir, filepath.Join(holders, filepath.Base(o.dir))))
	for file, text := range map[string]string{"dev": deviceText(mapper.Rdev), "dm/name": volume,
		"dm/uuid": "CRYPT-LUKS2-0-" + volume, "slaves/" + filepath.Base(s.bed.loop) + "/dev": deviceText(own.Rdev),
		"slaves/" + filepath.Base(s.bed.loop) + "/loop/backing_file": s.bed.file} {
		errs = append(errs, os.WriteFile(filepath.Join(o.dir, file), []byte(text+"\n"), 0o600))
	}
	return errors.Join(errs...)
}

func (s *standIn) close(volume string) ([]byte, error) {
	o := s.open[volume]
	if o == nil {
		return nil, exitStatus(4)
	}
	if used, err := (device{path: filepath.Join(mappers, volume)}).held(); err != nil || used {
		return nil, cmp.Or(err, error(exitStatus(cryptsetupBusy)))
	}
	s.bed.command("losetup", "--detach", o.loop)
	delete(s.open, volume)
	links, err := filepath.Glob(filepath.Join(s.bed.sys, "dev/block/*/holders", filepath.Base(o.dir)))
	for _, link := range links {
		err = errors.Join(err, os.Remove(link))
	}
	return nil, errors.Join(err, os.Remove(filepath.Join(mappers, volume)), os.RemoveAll(o.dir), o.hold.Close())
}

func (s *standIn) resize(volume, header, key string) ([]byte, error) {
	o := s.open[volume]
	if o == nil {
		return nil, exitStatus(4)
	}
	if err := s.fits(header, key); err != nil {
		return nil, err
	}
	s.bed.command("losetup", "--set-capacity", o.loop)
	return nil, nil
}

// setAside stands for the function of this name.
func (s *standIn) setAside(volume string, number uint64) error {
	o := s.open[volume]
	s.aside = append(s.aside, o)
	delete(s.open, volume)
	return errors.Join(os.WriteFile(filepath.Join(o.dir, "dm/name"), []byte(volume+"-former\n"), 0o600),
		os.Remove(filepath.Join(mappers, volume)))
}

// arguments of the first call of an action.
func (s *standIn) arguments(action string) []string {
	i := slices.IndexFunc(s.calls, func(c []string) bool { return c[0] == action })
	if i < 0 {
		return nil
	}
	return s.calls[i]
}
