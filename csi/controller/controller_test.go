package controller

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ankole.storage/csi/csitest"
	"ankole.storage/csi/request"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

var background = context.Background()

// TestAccessModes: which claims are volumes of which access mode, and which are refused.
func TestAccessModes(t *testing.T) {
	const multiReader = spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	migratable := map[string]string{"migratable": "true"}
	for _, tc := range []struct {
		name       string
		capability *spec.VolumeCapability
		parameters map[string]string
		mode       string
		migratable bool
		code       codes.Code
	}{
		{"ReadWriteOnce", csitest.Capability("ext4", csitest.Once), nil, "rwo", false, codes.OK},
		{"ReadWriteOnce of an older provisioner",
			csitest.Capability("xfs", spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER),
			nil, "rwo",
			false, codes.OK},
		{"block", csitest.Capability("", csitest.Once), nil, "rwo", false, codes.OK},
		{"ReadWriteOncePod", csitest.Capability("ext4", csitest.OncePod), nil, "rwop", false, codes.OK},
		{"exclusive", csitest.Capability("ext4", csitest.Once), map[string]string{"exclusive": "true"}, "rwop", false,
			codes.OK},
		{"a reader", csitest.Capability("ext4", csitest.Readers), nil, "rwo", false, codes.OK},
		{"migratable without ReadWriteMany", csitest.Capability("", csitest.Once), migratable, "rwo", false, codes.OK},
		{"migratable block", csitest.Capability("", csitest.Many), migratable, "rwx", true, codes.OK},
		{"ReadWriteMany block", csitest.Capability("", csitest.Many), nil, "", false, codes.InvalidArgument},
		{"ReadWriteMany file system", csitest.Capability("ext4", csitest.Many), migratable, "", false, codes.InvalidArgument},
		{"ReadOnlyMany", csitest.Capability("ext4", multiReader), nil, "", false, codes.InvalidArgument},
		{"exclusive and many", csitest.Capability("", csitest.Many), map[string]string{"migratable": "true",
			"exclusive": "true"}, "", false,
			codes.InvalidArgument},
		{"btrfs", csitest.Capability("btrfs", csitest.Once), nil, "", false, codes.InvalidArgument},
		{"nothing", &spec.VolumeCapability{}, nil, "", false, codes.InvalidArgument},
		{"no mode", csitest.Capability("ext4", spec.VolumeCapability_AccessMode_UNKNOWN), nil, "", false,
			codes.InvalidArgument},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFake()
			r := createRequest("vol-1", gib)
			r.VolumeCapabilities, r.Parameters = []*spec.VolumeCapability{tc.capability}, tc.parameters
			_, err := newController(f).CreateVolume(background, r)
			csitest.Wants(t, err, tc.code)
			if v := f.volumes["vol-1"]; (v != nil) != (tc.code == codes.OK) ||
				v != nil && (v.AccessMode != tc.mode || v.Migratable != tc.migratable) {
				t.Errorf("%+v", v)
			}
		})
	}
}

// TestSizes: sizes are multiples of 2 MiB from 10 MiB on.
func TestSizes(t *testing.T) {
	for _, tc := range []struct {
		required, limit int64
		fs              string
		want            int64
		code            codes.Code
	}{
		{0, 0, "ext4", gib, codes.OK}, {1, 0, "ext4", 10 * mib, codes.OK}, {11*mib + 1, 0, "ext4", 12 * mib, codes.OK},
		{gib, gib, "ext4", gib, codes.OK}, {0, 100 * mib, "ext4", 100 * mib, codes.OK},
		{gib - 1, gib - 1, "ext4", 0, codes.OutOfRange}, {1, 5 * mib, "ext4", 0, codes.OutOfRange},
		{2 * gib, gib, "ext4", 0, codes.InvalidArgument}, {-1, 0, "ext4", 0, codes.InvalidArgument},
		{300 * mib, 0, "xfs", 300 * mib, codes.OK}, {298 * mib, 0, "xfs", 0, codes.OutOfRange},
		{16 << 40, 0, "ext4", 0, codes.OutOfRange}, {16 << 40, 0, "xfs", 16 << 40, codes.OK}, {16 << 40, 0, "", 16 << 40,
			codes.OK},
	} {
		r := createRequest("vol-1", tc.required)
		r.CapacityRange.LimitBytes = tc.limit
		r.VolumeCapabilities = []*spec.VolumeCapability{csitest.Capability(tc.fs, csitest.Once)}
		resp, err := newController(newFake()).CreateVolume(background, r)
		if status.Code(err) != tc.code || resp.GetVolume().GetCapacityBytes() != tc.want {
			t.Errorf("%d to %d bytes of %s: %d, %v", tc.required, tc.limit, tc.fs, resp.GetVolume().GetCapacityBytes(), err)
		}
	}
}

// TestCreateTwice: the same wish is fulfilled once; another one of the same name is refused.
func TestCreateTwice(t *testing.T) {
	f := newFake()
	c := newController(f)
	r := createRequest("vol-1", gib)
	r.Parameters = map[string]string{"numberOfReplicas": "2"}
	first, second := ordered(t, c, r), ordered(t, c, r)
	if first.String() != second.String() || f.orders != 1 || first.VolumeContext["numberOfReplicas"] != "2" {
		t.Errorf("%v, %v, %d orders", first, second, f.orders)
	}
	for name, other := range map[string]*spec.CreateVolumeRequest{
		"larger": createRequest("vol-1", 2*gib),
		"smaller": {Name: "vol-1", CapacityRange: &spec.CapacityRange{LimitBytes: gib / 2},
			VolumeCapabilities: r.VolumeCapabilities},
		"mode": {Name: "vol-1", CapacityRange: r.CapacityRange,
			VolumeCapabilities: []*spec.VolumeCapability{csitest.Capability("ext4", csitest.OncePod)}},
	} {
		_, err := c.CreateVolume(background, other)
		if status.Code(err) != codes.AlreadyExists {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// volumeSource and snapshotSource are what a claim is to be filled with.
func volumeSource(id string) *spec.VolumeContentSource {
	return &spec.VolumeContentSource{Type: &spec.VolumeContentSource_Volume{
		Volume: &spec.VolumeContentSource_VolumeSource{VolumeId: id}}}
}

func snapshotSource(id string) *spec.VolumeContentSource {
	return &spec.VolumeContentSource{Type: &spec.VolumeContentSource_Snapshot{
		Snapshot: &spec.VolumeContentSource_SnapshotSource{SnapshotId: id}}}
}

func snapshotted(t *testing.T, c *Server, volume, name string) *spec.Snapshot {
	t.Helper()
	resp, err := c.CreateSnapshot(background, &spec.CreateSnapshotRequest{SourceVolumeId: volume, Name: name,
		Parameters: map[string]string{"type": "snap"}})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Snapshot
}

// TestContent: a volume is filled from a volume or a snapshot, and grows to what the claim wants.
func TestContent(t *testing.T) {
	f := newFake()
	f.looks = 2
	c := newController(f)
	ordered(t, c, createRequest("source", gib))
	s := snapshotted(t, c, "source", "snapshot-1")
	if s.SnapshotId != "snap://source/snapshot-1" || s.SizeBytes != gib || !s.ReadyToUse ||
		s.CreationTime.GetSeconds() == 0 {
		t.Errorf("%v", s)
	}
	for _, tc := range []struct {
		name   string
		from   *spec.VolumeContentSource
		size   int64
		source string
		code   codes.Code
	}{
		{"clone", volumeSource("source"), gib, "vol://source", codes.OK},
		{"restored", snapshotSource(s.SnapshotId), gib, "snap://source/snapshot-1", codes.OK},
		{"larger", snapshotSource(s.SnapshotId), 2 * gib, "snap://source/snapshot-1", codes.OK},
		{"smaller", volumeSource("source"), gib / 2, "", codes.OutOfRange},
		{"missing", volumeSource("nobody"), gib, "", codes.NotFound},
		{"lost", snapshotSource("snap://source/other"), gib, "", codes.NotFound},
		{"elsewhere", snapshotSource("snap://nobody/snapshot-1"), gib, "", codes.NotFound},
		{"nonsense", snapshotSource("non-existing-snapshot-id"), gib, "", codes.NotFound},
		{"backup", snapshotSource("bak://source/backup-1"), gib, "", codes.NotFound},
	} {
		r := createRequest(tc.name, tc.size)
		r.VolumeContentSource = tc.from
		for range 2 {
			resp, err := c.CreateVolume(background, r)
			if status.Code(err) != tc.code {
				t.Errorf("%s: %v", tc.name, err)
			}
			if v := f.volumes[tc.name]; tc.code == codes.OK &&
				(v.DataSource != tc.source || resp.Volume.CapacityBytes != tc.size || resp.Volume.ContentSource == nil) {
				t.Errorf("%s: %+v, %v", tc.name, v, resp)
			}
		}
	}
	_, err := c.CreateVolume(background, createRequest("clone", gib)) // the same without content
	csitest.Wants(t, err, codes.AlreadyExists)
}

// TestAnyAnswerLost: whichever call to the manager fails, before or after its effect, the caller's
// next call ends as if nothing had been, and nothing is ordered twice.
func TestAnyAnswerLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i, failure := range append(failures, failures...) {
			for failAt := 1; ; failAt++ {
				f := newFake()
				f.looks, f.failAt, f.lost, f.failure = 1, failAt, i < len(failures), failure
				c := newController(f)
				failed := 0
				retry := func(call func() error) {
					t.Helper()
					if err := call(); err != nil {
						failed++
						if status.Code(err) != codes.Unavailable {
							t.Errorf("call %d of the manager: %v", failAt, err)
						}
						if err := call(); err != nil {
							t.Errorf("after call %d of the manager had failed: %v", failAt, err)
						}
					}
				}
				life(c, retry)
				if f.orders != 3 || len(f.volumes) != 0 || len(f.snapshots) != 0 || failed > 1 {
					t.Errorf("call %d: %d orders, %d volumes and %d snapshots are left, %d failures", failAt, f.orders, len(f.volumes),
						len(f.snapshots), failed)
				}
				if f.calls < failAt {
					break // there were no more calls
				}
			}
		}
	})
}

// failures are answers that say nothing about what was asked.
var failures = []error{
	fmt.Errorf("%w: cut off for a test", client.ErrUnreachable),
	fmt.Errorf("GET /v1/volumes/vol-1: %w", io.ErrUnexpectedEOF),
	&client.Error{Status: http.StatusUnauthorized}, &client.Error{Status: http.StatusForbidden},
	&client.Error{Status: http.StatusTooManyRequests}, &client.Error{Status: http.StatusBadGateway},
	&client.Error{Status: http.StatusServiceUnavailable},
}

// life is all that happens to a volume, its snapshot and its clone.
func life(c *Server, call func(func() error)) {
	clone := createRequest("vol-2", 2*gib)
	clone.VolumeContentSource = snapshotSource("snap://vol-1/snapshot-1")
	call(func() error { _, err := c.CreateVolume(background, createRequest("vol-1", gib)); return err })
	call(func() error {
		_, err := c.ControllerPublishVolume(background, &spec.ControllerPublishVolumeRequest{VolumeId: "vol-1",
			NodeId:           "node-1",
			VolumeCapability: csitest.Capability("ext4", csitest.Once)})
		return err
	})
	call(func() error {
		_, err := c.CreateSnapshot(background, &spec.CreateSnapshotRequest{SourceVolumeId: "vol-1", Name: "snapshot-1",
			Parameters: map[string]string{"type": "snap"}})
		return err
	})
	call(func() error { _, err := c.CreateVolume(background, clone); return err })
	call(func() error {
		_, err := c.ControllerExpandVolume(background, &spec.ControllerExpandVolumeRequest{VolumeId: "vol-1",
			CapacityRange: &spec.CapacityRange{RequiredBytes: 4 * gib}})
		return err
	})
	call(func() error {
		_, err := c.ControllerUnpublishVolume(background, &spec.ControllerUnpublishVolumeRequest{VolumeId: "vol-1",
			NodeId: "node-1"})
		return err
	})
	call(func() error {
		_, err := c.DeleteSnapshot(background, &spec.DeleteSnapshotRequest{SnapshotId: "snap://vol-1/snapshot-1"})
		return err
	})
	for _, name := range []string{"vol-1", "vol-2"} {
		call(func() error {
			_, err := c.DeleteVolume(background, &spec.DeleteVolumeRequest{VolumeId: name})
			return err
		})
	}
}

// TestTimeIsUp: a caller that gives up finds the work done further by its next call.
func TestTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.looks = 20
		c := newController(f)
		c.patience = 3 * time.Second
		_, err := c.CreateVolume(background, createRequest("vol-1", gib))
		csitest.Wants(t, err, codes.DeadlineExceeded)
		csitest.Says(t, err, "vol-1", "creating")
		for range 10 {
			if _, err = c.CreateVolume(background, createRequest("vol-1", gib)); err == nil {
				break
			}
		}
		if err != nil || f.orders != 1 {
			t.Errorf("%v, %d orders", err, f.orders)
		}
	})
}

// TestPublish: who may have a volume where.
func TestPublish(t *testing.T) {
	f := newFake()
	c := newController(f)
	ordered(t, c, createRequest("vol-1", gib))
	publish := func(volume, node string, u *spec.VolumeCapability) (*spec.ControllerPublishVolumeResponse, error) {
		return c.ControllerPublishVolume(background, &spec.ControllerPublishVolumeRequest{VolumeId: volume, NodeId: node,
			VolumeCapability: u})
	}
	file := csitest.Capability("ext4", csitest.Once)
	for range 2 {
		resp, err := publish("vol-1", "node-1", file)
		if err != nil || resp.PublishContext[request.ContextDevice] != "/dev/longhorn/vol-1" {
			t.Errorf("%v, %v", resp, err)
		}
	}
	if n := len(f.volumes["vol-1"].VolumeAttachment.Attachments); n != 1 {
		t.Errorf("%d tickets", n)
	}
	_, err := publish("vol-1", "node-2", file)
	csitest.Wants(t, err, codes.FailedPrecondition)
	csitest.Says(t, err, "volume vol-1 is published on node node-1; unpublish it there first: Kubernetes does that when no Pod",
		"kubectl delete volumeattachments.storage.k8s.io "+ticketID("vol-1", "node-1"),
		"ankole volume detach vol-1 --force")
	_, err = publish("vol-1", "node-9", file)
	csitest.Wants(t, err, codes.NotFound)
	_, err = publish("nobody", "node-1", file)
	csitest.Wants(t, err, codes.NotFound)
	_, err = publish("vol-1", "node-1", csitest.Capability("", csitest.Many))
	csitest.Wants(t, err, codes.InvalidArgument)
	_, err = c.DeleteVolume(background, &spec.DeleteVolumeRequest{VolumeId: "vol-1"})
	csitest.Wants(t, err, codes.FailedPrecondition)
	f.deviceless = true
	_, err = publish("vol-1", "node-1", file)
	csitest.Wants(t, err, codes.FailedPrecondition)
	csitest.Says(t, err, "no block device on node node-1 but nbd+unix:///vol-1: the instance manager there needs root, FUSE and loop "+
		"devices", "ankole node describe node-1 (condition KernelModulesLoaded), ankole engine logs vol-1")
	f.deviceless = false
	f.volumes["vol-1"].VolumeAttachment.Attachments["snapshot-controller-x"] = resource.Attachment{NodeID: "node-1",
		AttachmentType: "snapshot-controller"}
	if _, err = c.ControllerUnpublishVolume(background,
		&spec.ControllerUnpublishVolumeRequest{VolumeId: "vol-1"}); err != nil {
		t.Error(err)
	}
	if n := len(f.volumes["vol-1"].VolumeAttachment.Attachments); n != 1 {
		t.Errorf("%d tickets, another's is left alone", n)
	}
	f.volumes["vol-1"].Robustness = faulted
	_, err = publish("vol-1", "node-1", file)
	csitest.Wants(t, err, codes.FailedPrecondition)
	csitest.Says(t, err, "volume vol-1 is faulted: no replica can serve it; see which", "ankole volume describe vol-1",
		"then: ankole volume salvage vol-1")
	f.volumes["vol-1"].Conditions = map[string]resource.Condition{"Start": {Status: "False", Message: "b is damaged"}}
	_, err = publish("vol-1", "node-1", file)
	csitest.Wants(t, err, codes.FailedPrecondition)
	csitest.Says(t, err, "no replica can serve it; b is damaged; see which")
}

// TestTicketID: the name that Kubernetes gives its VolumeAttachment.
func TestTicketID(t *testing.T) {
	// sha256sum of "pvc-1driver.longhorn.ionode-1"
	const want = "csi-76ed8a2352c7837587e14441782ed9b4db65098984db2ba71e86e3408356380a"
	if got := ticketID("pvc-1", "node-1"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestMigration: a migratable block volume is on two nodes while its user moves.
func TestMigration(t *testing.T) {
	f := newFake()
	c := newController(f)
	r := createRequest("vol-1", gib)
	r.Parameters, r.VolumeCapabilities = map[string]string{"migratable": "true"},
		[]*spec.VolumeCapability{csitest.Capability("", csitest.Many)}
	ordered(t, c, r)
	for _, node := range []string{"node-1", "node-2"} {
		_, err := c.ControllerPublishVolume(background, &spec.ControllerPublishVolumeRequest{VolumeId: "vol-1", NodeId: node,
			VolumeCapability: csitest.Capability("", csitest.Many)})
		if err != nil {
			t.Errorf("%s: %v", node, err)
		}
	}
	if n := len(f.volumes["vol-1"].VolumeAttachment.Attachments); n != 2 {
		t.Errorf("%d tickets, want one for each node", n)
	}
}

// TestCondition: volumes that are not well say so.
func TestCondition(t *testing.T) {
	f := newFake()
	c := newController(f)
	ordered(t, c, createRequest("vol-1", gib))
	for robustness, abnormal := range map[string]bool{"healthy": false, "unknown": false, "degraded": true,
		"faulted": true} {
		f.volumes["vol-1"].Robustness = robustness
		resp, err := c.ControllerGetVolume(background, &spec.ControllerGetVolumeRequest{VolumeId: "vol-1"})
		if err != nil || resp.Status.VolumeCondition.Abnormal != abnormal || resp.Status.VolumeCondition.Message == "" {
			t.Errorf("%s: %v, %v", robustness, resp, err)
		}
	}
}

// unplaced is a manager without room.
type unplaced struct {
	*fake
	replicas []resource.Replica
}

func (u *unplaced) Volume(ctx context.Context, name string) (*resource.Volume, error) {
	v, err := u.fake.Volume(ctx, name)
	if err == nil {
		v.Replicas = u.replicas
		v.Ready, v.Conditions = false, map[string]resource.Condition{"Scheduled": {Status: "False",
			Message: "insufficient storage"}}
	}
	return v, err
}

// TestManyAtOnce: calls for one volume at the same time order it once.
func TestManyAtOnce(t *testing.T) {
	f := newFake()
	f.looks = 3
	c := newController(f)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			_, err := c.CreateVolume(background, createRequest("vol-1", gib))
			if code := status.Code(err); code != codes.OK && code != codes.Aborted {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if f.orders != 1 {
		t.Errorf("%d orders", f.orders)
	}
}

// TestModify: what a VolumeAttributesClass asks for reaches the manager.
func TestModify(t *testing.T) {
	f := newFake()
	c := newController(f)
	ordered(t, c, createRequest("vol-1", gib))
	modify := func(volume string, p map[string]string) error {
		_, err := c.ControllerModifyVolume(background, &spec.ControllerModifyVolumeRequest{VolumeId: volume,
			MutableParameters: p})
		return err
	}
	csitest.Wants(t, modify("vol-1", map[string]string{"numberOfReplicas": "2", "replicaAutoBalance": "disabled"}),
		codes.OK)
	want := []string{"updateReplicaCountmap[replicaCount:2]", "updateReplicaAutoBalancemap[replicaAutoBalance:disabled]"}
	if !slices.Equal(f.updates, want) {
		t.Errorf("%q", f.updates)
	}
	csitest.Wants(t, modify("vol-1", map[string]string{"XXX_FakeKey": "1"}), codes.InvalidArgument)
	csitest.Wants(t, modify("nobody", nil), codes.NotFound)
	csitest.Wants(t, modify("", nil), codes.InvalidArgument)
}

// silent is a manager that does not answer.
type silent struct{ request.Manager }

func (silent) Volume(ctx context.Context, _ string) (*resource.Volume, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestModifyEnds: a manager that does not answer costs the call its patience and no more.
func TestModifyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Server{manager: silent{}, patience: 3 * time.Second, log: slog.New(slog.DiscardHandler)}
		began := time.Now()
		ctx, cancel := context.WithTimeout(background, time.Hour)
		defer cancel()
		_, err := c.ControllerModifyVolume(ctx, &spec.ControllerModifyVolumeRequest{VolumeId: "vol-1"})
		csitest.Wants(t, err, codes.DeadlineExceeded)
		if took := time.Since(began); took != c.patience {
			t.Errorf("it took %v", took)
		}
	})
}

// overtaken is a manager whose next answer about a volume is held up while something else happens.
type overtaken struct {
	*fake
	meanwhile func()
}

func (o *overtaken) Volume(ctx context.Context, name string) (*resource.Volume, error) {
	v, err := o.fake.Volume(ctx, name)
	if do := o.meanwhile; do != nil {
		o.meanwhile = nil
		do()
	}
	return v, err
}
