package csi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/host/hostpath"
	"ankole.storage/host/mountinfo"
	"ankole.storage/host/patience"
	restclient "ankole.storage/rest/client"
	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
	"ankole.storage/test/testcluster"
	"ankole.storage/test/wait"
)

const (
	mib = 1 << 20
	// longest bounds every wait for a condition; machines that run tests are slow and shared.
	longest = 3 * time.Minute
)

// program is the driver with the steps at which ANKOLE_CSI_STOP_AT ends it.
var program = sync.OnceValues(func() (string, error) { return rig.Build("csi", rig.StopPoints) })

// bed is a cluster and where the test keeps sockets and mounts.
type bed struct {
	*testcluster.Cluster
	rest *restclient.Client
	dir  string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	if err := blockdev.Available(); err != nil {
		lack.Skip(t, "volumes have no block device here: ", err)
	}
	for _, name := range []string{"mkfs.ext4", "mkfs.xfs", "fsck", "blkid", "xfs_growfs", "resize2fs"} {
		if _, err := exec.LookPath(name); err != nil {
			lack.Skip(t, name, " is not installed")
		}
	}
	b := &bed{Cluster: testcluster.Start(t, testcluster.Options{Manager: true})}
	var err error
	if b.rest, err = b.REST(); err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir: the path of a socket has 107 bytes.
	if b.dir, err = os.MkdirTemp("", "csi-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.clean(t) })
	return b
}

// clean removes what a failed test has left mounted.
func (b *bed) clean(t *testing.T) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	var targets []string
	err = mountinfo.Each(f, func(m *mountinfo.Mount) {
		if strings.HasPrefix(m.Target, b.dir+"/") {
			targets = append([]string{m.Target}, targets...)
		}
	})
	for _, target := range targets {
		if !t.Failed() {
			t.Errorf("%s is still mounted", target)
		}
		err = errors.Join(err, unix.Unmount(target, unix.MNT_DETACH))
	}
	if err := errors.Join(err, os.RemoveAll(b.dir)); err != nil {
		t.Error(err)
	}
}

// driver is a process of the driver on one node.
type driver struct {
	spec.IdentityClient
	spec.ControllerClient
	spec.NodeClient
	bed    *bed
	node   string
	socket string
	cmd    *exec.Cmd
	output *bytes.Buffer
	ended  chan struct{}
	conn   *grpc.ClientConn
}

// start runs the driver of node k, which ends at a step if one is named.
func (b *bed) start(t *testing.T, k int, stopAt string) *driver {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	node := b.Nodes[k-1]
	mounts, err := json.Marshal(map[string]string{"/dev/longhorn": node.Devices})
	if err != nil {
		t.Fatal(err)
	}
	d := &driver{bed: b, node: node.Name, socket: filepath.Join(b.dir, node.Name+".sock"), output: &bytes.Buffer{},
		ended: make(chan struct{})}
	d.cmd = exec.Command(path, "--node-id", node.Name, "--manager-url", b.API, "--token-file", b.TokenFile,
		"--endpoint", d.socket)
	d.cmd.Env = append(os.Environ(), hostpath.Variable+"="+string(mounts), "ANKOLE_CSI_STOP_AT="+stopAt)
	d.cmd.Stdout, d.cmd.Stderr = d.output, d.output
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = d.cmd.Wait(); close(d.ended) }()
	t.Cleanup(func() {
		d.stop(t)
		if t.Failed() {
			t.Logf("output of the driver on %s:\n%s", d.node, d.output)
		}
	})
	d.conn, err = grpc.NewClient("unix://"+d.socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	d.IdentityClient, d.ControllerClient, d.NodeClient = spec.NewIdentityClient(d.conn), spec.NewControllerClient(d.conn),
		spec.NewNodeClient(d.conn)
	ctx, cancel := context.WithTimeout(context.Background(), patience.Of(longest))
	defer cancel()
	if _, err := d.Probe(ctx, &spec.ProbeRequest{}); err != nil {
		if ctx.Err() != nil {
			wait.RanOut(t, "the driver answers")
		}
		t.Fatalf("the driver does not answer: %v", err)
	}
	return d
}

// stop ends the driver in good order; one that has ended is no error.
func (d *driver) stop(t *testing.T) {
	t.Helper()
	_ = d.conn.Close()
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // it may be gone
	select {
	case <-d.ended:
	case <-time.After(patience.Of(longest)):
		wait.RanOut(t, "end of the driver of "+d.node)
		_ = d.cmd.Process.Kill()
		t.Errorf("the driver of %s ignores SIGTERM", d.node)
	}
}

// capability of a file system, or with an empty name of a block volume.
func capability(fs string) *spec.VolumeCapability {
	c := &spec.VolumeCapability{AccessMode: &spec.VolumeCapability_AccessMode{
		Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER}}
	if fs == "" {
		c.AccessType = &spec.VolumeCapability_Block{Block: &spec.VolumeCapability_BlockVolume{}}
	} else {
		c.AccessType = &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{FsType: fs}}
	}
	return c
}

// claim is a volume as its user sees it.
type claim struct {
	name, fs string
	size     int64
	from     *spec.VolumeContentSource
	device   map[string]string // publish context
}

func (c *claim) staging(d *driver) string {
	return filepath.Join(d.bed.dir, d.node, c.name, "globalmount")
}

func (c *claim) target(d *driver) string {
	return filepath.Join(d.bed.dir, d.node, c.name, "pod", "mount")
}

// file is what the user reads and writes.
func (c *claim) file(d *driver) string {
	if c.fs == "" {
		return c.target(d)
	}
	return filepath.Join(c.target(d), "data")
}

// call is one of the calls in a volume's life.
type call struct {
	name string
	do   func(ctx context.Context, d *driver) error
}

// provide are the calls that bring a claim into a Pod, in their order.
func (c *claim) provide(readOnly bool) []call {
	u := capability(c.fs)
	parameters := map[string]string{"numberOfReplicas": "2"}
	return []call{
		{"create", func(ctx context.Context, d *driver) error {
			_, err := d.CreateVolume(ctx, &spec.CreateVolumeRequest{Name: c.name, Parameters: parameters,
				CapacityRange: &spec.CapacityRange{RequiredBytes: c.size}, VolumeContentSource: c.from,
				VolumeCapabilities: []*spec.VolumeCapability{u}})
			return err
		}},
		{"attach", func(ctx context.Context, d *driver) error {
			r, err := d.ControllerPublishVolume(ctx, &spec.ControllerPublishVolumeRequest{VolumeId: c.name, NodeId: d.node,
				VolumeCapability: u, VolumeContext: parameters})
			c.device = r.GetPublishContext()
			return err
		}},
		{"stage", func(ctx context.Context, d *driver) error {
			if err := os.MkdirAll(c.staging(d), 0o750); err != nil {
				return err
			}
			_, err := d.NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{VolumeId: c.name, StagingTargetPath: c.staging(d),
				VolumeCapability: u, PublishContext: c.device, VolumeContext: parameters})
			return err
		}},
		{"publish", func(ctx context.Context, d *driver) error {
			_, err := d.NodePublishVolume(ctx, &spec.NodePublishVolumeRequest{VolumeId: c.name, StagingTargetPath: c.staging(d),
				TargetPath: c.target(d), VolumeCapability: u, PublishContext: c.device, VolumeContext: parameters,
				Readonly: readOnly})
			return err
		}},
	}
}

// release are the calls that take a claim out of a Pod and off the node.
func (c *claim) release() []call {
	return []call{
		{"unpublish", func(ctx context.Context, d *driver) error {
			_, err := d.NodeUnpublishVolume(ctx, &spec.NodeUnpublishVolumeRequest{VolumeId: c.name, TargetPath: c.target(d)})
			return err
		}},
		{"unstage", func(ctx context.Context, d *driver) error {
			_, err := d.NodeUnstageVolume(ctx, &spec.NodeUnstageVolumeRequest{VolumeId: c.name, StagingTargetPath: c.staging(d)})
			return err
		}},
		{"detach", func(ctx context.Context, d *driver) error {
			_, err := d.ControllerUnpublishVolume(ctx, &spec.ControllerUnpublishVolumeRequest{VolumeId: c.name, NodeId: d.node})
			return err
		}},
	}
}

func (c *claim) remove() call {
	return call{"delete", func(ctx context.Context, d *driver) error {
		_, err := d.DeleteVolume(ctx, &spec.DeleteVolumeRequest{VolumeId: c.name})
		return err
	}}
}

// all makes each call until it succeeds, as Kubernetes does, and gives up after a while.
func (d *driver) all(t *testing.T, calls ...call) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience.Of(longest))
	defer cancel()
	for _, c := range calls {
		pause := 50 * time.Millisecond
		for {
			err := c.do(ctx, d)
			if err == nil {
				break
			}
			t.Logf("%s: %v", c.name, err)
			select {
			case <-time.After(pause):
				pause = min(2*pause, 2*time.Second)
			case <-ctx.Done():
				wait.RanOut(t, c.name)
				t.Fatalf("%s: %v", c.name, err)
			}
		}
	}
}
