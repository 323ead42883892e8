package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"ankole.storage/controlplane/object/naming"
	"ankole.storage/host/hostpath"
	"ankole.storage/test/lack"
)

const (
	mib = 1 << 20
	// minXFS is what mkfs.xfs asks for.
	minXFS = 300 * mib
)

// devices is where this test binary has /dev/longhorn, and mappers /dev/mapper unless it runs where
// there is device-mapper (realVariable).
var devices, mappers string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if devices, err = os.MkdirTemp("", "csi-dev-"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(devices)
		mappers = filepath.Join(devices, ".mapper")
		if err := os.Mkdir(mappers, 0o700); err != nil {
			panic(err)
		}
		places := map[string]string{deviceDir: devices}
		if os.Getenv(realVariable) == "" {
			places[naming.MapperDirectory] = mappers
		}
		mounts, err := json.Marshal(places)
		if err != nil {
			panic(err)
		}
		os.Setenv(hostpath.Variable, string(mounts))
		return m.Run()
	}())
}

// bed is a node service with one volume, whose device is a loop device on a file.
type bed struct {
	*testing.T
	*Server
	volume, file, loop, dir string
	patience                time.Duration
	// given is the publish context, context that of the volume.
	given, context map[string]string
	// secrets of the calls that have some; fitted changes each new node service.
	secrets map[string]string
	fitted  func(n *Server)
}

func newBed(t *testing.T, sizeBytes int64) *bed {
	t.Helper()
	if os.Geteuid() != 0 {
		lack.Skip(t, "mounts need root")
	}
	for _, program := range []string{"losetup", "mkfs.ext4", "mkfs.xfs", "fsck", "blkid", "resize2fs", "xfs_growfs"} {
		if _, err := exec.LookPath(program); err != nil {
			lack.Skip(t, program+" is not installed")
		}
	}
	// Not t.TempDir, whose name may have what mount takes for options.
	dir, err := os.MkdirTemp("", "csi-node-")
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{T: t, dir: dir, patience: 10 * time.Second,
		volume: "vol-" + strings.TrimPrefix(filepath.Base(dir), "csi-node-")}
	b.file = filepath.Join(dir, b.volume)
	t.Cleanup(b.clean)
	if err := os.WriteFile(b.file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(b.file, sizeBytes); err != nil {
		t.Fatal(err)
	}
	b.attach()
	b.restart()
	return b
}

// restart is what a new process of the driver begins with.
func (b *bed) restart() {
	b.Server = New("node-1", nil, b.patience, slog.New(slog.DiscardHandler))
	if b.fitted != nil {
		b.fitted(b.Server)
	}
}

func (b *bed) attach() {
	b.Helper()
	b.loop = strings.TrimSpace(b.command("losetup", "--find", "--show", b.file))
	var st unix.Stat_t
	if err := unix.Stat(b.loop, &st); err != nil {
		b.Fatal(err)
	}
	if err := unix.Mknod(filepath.Join(devices, b.volume), unix.S_IFBLK|0o600, int(st.Rdev)); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) detach() {
	b.Helper()
	b.command("losetup", "--detach", b.loop)
	b.loop = ""
	if err := os.Remove(filepath.Join(devices, b.volume)); err != nil {
		b.Fatal(err)
	}
}

// anew has another device in the place of the volume's, on a file. Whoever has the former one open
// keeps it.
func (b *bed) anew(file string) {
	b.Helper()
	b.detach()
	b.file = file
	b.attach()
}

// clean removes everything, whatever the test has left.
func (b *bed) clean() {
	all, err := table()
	if err != nil {
		b.Error(err)
	}
	for i := len(all) - 1; i >= 0; i-- {
		if strings.HasPrefix(all[i].Target, b.dir+"/") {
			if err := unix.Unmount(all[i].Target, unix.MNT_DETACH); err != nil {
				b.Errorf("unmount %s: %v", all[i].Target, err)
			}
		}
	}
	if b.loop != "" {
		_ = exec.Command("losetup", "--detach", b.loop).Run() // it may be detached
	}
	_ = os.Remove(filepath.Join(devices, b.volume)) // the same
	if err := os.RemoveAll(b.dir); err != nil {
		b.Error(err)
	}
}

func (b *bed) command(name string, args ...string) string {
	b.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		b.Fatalf("%s %q: %v: %s%s", name, args, err, out, stderr.String())
	}
	return string(out)
}

func (b *bed) staging() string { return filepath.Join(b.dir, "staging") }

func (b *bed) target(n int) string { return filepath.Join(b.dir, fmt.Sprintf("pod-%d", n), "mount") }

func (b *bed) stage(c *spec.VolumeCapability) error {
	_, err := b.NodeStageVolume(context.Background(), &spec.NodeStageVolumeRequest{VolumeId: b.volume,
		StagingTargetPath: b.staging(), VolumeCapability: c, PublishContext: b.given, VolumeContext: b.context,
		Secrets: b.secrets})
	return err
}

func (b *bed) publish(n int, c *spec.VolumeCapability, readOnly bool) error {
	_, err := b.NodePublishVolume(context.Background(), &spec.NodePublishVolumeRequest{VolumeId: b.volume,
		StagingTargetPath: b.staging(), TargetPath: b.target(n), VolumeCapability: c, Readonly: readOnly,
		PublishContext: b.given, VolumeContext: b.context, Secrets: b.secrets})
	return err
}

func (b *bed) unpublish(n int) error {
	_, err := b.NodeUnpublishVolume(context.Background(), &spec.NodeUnpublishVolumeRequest{VolumeId: b.volume,
		TargetPath: b.target(n)})
	return err
}

func (b *bed) unstage() error {
	_, err := b.NodeUnstageVolume(context.Background(), &spec.NodeUnstageVolumeRequest{VolumeId: b.volume,
		StagingTargetPath: b.staging()})
	return err
}

// must fails the test with the first error.
func (b *bed) must(errs ...error) {
	b.Helper()
	for i, err := range errs {
		if err != nil {
			b.Fatalf("call %d: %v", i+1, err)
		}
	}
}

// write puts content into a file at a target and makes it durable.
func (b *bed) write(n int, content string) {
	b.Helper()
	f, err := os.Create(filepath.Join(b.target(n), "data"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(content); err != nil {
		b.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) read(n int) string {
	b.Helper()
	p, err := os.ReadFile(filepath.Join(b.target(n), "data"))
	if err != nil {
		b.Fatal(err)
	}
	return string(p)
}

// mountsOf counts what is mounted at a path.
func (b *bed) mountsOf(path string) int {
	b.Helper()
	at, err := mounted(path)
	if err != nil {
		b.Fatal(err)
	}
	return len(at)
}
