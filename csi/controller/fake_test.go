package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/csi/csitest"
	"ankole.storage/csi/request"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// fake is a manager in memory whose controllers do at once, or after some looks, what is wished.
type fake struct {
	request.Manager // for what a node service tells, which is not asked for here
	mu              sync.Mutex
	volumes         map[string]*resource.Volume
	snapshots       map[string]*resource.SnapshotCR
	backups         map[string]*resource.Backup
	nodes           []resource.Node
	settings        map[string]string
	// looks is how often something must be looked at before it has what is wished.
	looks int
	seen  map[string]int
	// failAt is the number of the call that fails, after or before its effect; 0: none.
	calls, failAt int
	lost          bool
	failure       error // what the call that fails ends with
	cloneFails    bool
	away          bool // nobody answers
	deviceless    bool // volumes are served on a socket
	// stuck nodes take no volume; their tickets have this condition.
	stuck      map[string]func() resource.Condition
	updates    []string
	generation int64 // of the last ticket
	room       int64 // largest size of a volume in bytes; 0: any
	orders     int   // volumes and snapshots that were ordered
	noTarget   bool  // no backup can be made
	noGrowth   int   // expansions that are refused
}

func newFake() *fake {
	f := &fake{volumes: map[string]*resource.Volume{}, snapshots: map[string]*resource.SnapshotCR{},
		backups: map[string]*resource.Backup{},
		seen:    map[string]int{},
		settings: map[string]string{request.TopologySetting: "", "storage-over-provisioning-percentage": "100",
			"storage-minimal-available-percentage": "25", "default-replica-count": `{"v1":"3"}`,
			"allow-empty-node-selector-volume": "true", "allow-empty-disk-selector-volume": "true",
			"replica-soft-anti-affinity": "false"}}
	for i := range 3 {
		ok := map[string]resource.Condition{"Ready": {Status: "True"}, "Schedulable": {Status: "True"}}
		f.nodes = append(f.nodes, resource.Node{Name: fmt.Sprintf("node-%d", i+1), Zone: fmt.Sprintf("zone-%d", i+1),
			Region: "region-1", AllowScheduling: true, Conditions: ok, Disks: map[string]resource.DiskInfo{"d": {
				AllowScheduling: true, Conditions: ok, StorageMaximum: int64(i+1) * 100 * gib,
				StorageAvailable: int64(i+1) * 100 * gib}}})
	}
	return f
}

// begin counts a call. It answers what makes the call fail after it has had its effect, and the
// error if it fails before.
func (f *fake) begin() (after func(error) error, err error) {
	f.calls++
	if f.away {
		return nil, fmt.Errorf("%w: away for a test", client.ErrUnreachable)
	}
	if f.calls != f.failAt {
		return func(err error) error { return err }, nil
	}
	if !f.lost {
		return nil, f.failure
	}
	return func(error) error { return f.failure }, nil
}

func notFound(what string) error { return &client.Error{Status: http.StatusNotFound, Path: what} }

func refusal(format string, args ...any) error {
	return &client.Error{Status: http.StatusInternalServerError, Message: fmt.Sprintf(format, args...)}
}

// do runs a call of the fake under its lock.
func do[T any](f *fake, work func() (T, error)) (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var none T
	after, err := f.begin()
	if err != nil {
		return none, err
	}
	out, err := work()
	if err = after(err); err != nil {
		return none, err
	}
	return out, nil
}

// due reports whether something has been looked at often enough.
func (f *fake) due(what string) bool {
	f.seen[what]++
	return f.seen[what] > f.looks
}

// settle is what the controllers do with a volume that is looked at.
func (f *fake) settle(v *resource.Volume) {
	if v.State == "creating" && f.due("create "+v.Name) {
		v.State, v.Ready = stateDetached, true
	}
	if v.DataSource != "" && v.CloneStatus.State == "" && f.due("clone "+v.Name) {
		v.CloneStatus.State = "completed"
		if f.cloneFails {
			v.CloneStatus.State = cloneFailed
		}
	}
	if v.DataSource != "" {
		v.Ready = v.State != "creating" && v.CloneStatus.State == "completed"
	}
	var ids []string
	for id := range v.VolumeAttachment.Attachments {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	v.Controllers = []resource.Controller{{Size: v.Controllers[0].Size}}
	if len(ids) == 0 && v.State != "creating" && v.State != stateDeleting {
		v.State = stateDetached
	}
	for _, id := range ids {
		t := v.VolumeAttachment.Attachments[id]
		if said := f.stuck[t.NodeID]; said != nil {
			t.Conditions = []resource.Condition{said()}
			v.VolumeAttachment.Attachments[id] = t
			continue
		}
		if t.Satisfied = t.Satisfied || f.due("attach "+id); t.Satisfied {
			v.State = stateAttached
			e := resource.Controller{HostID: t.NodeID, Running: true, Endpoint: "/dev/longhorn/" + v.Name,
				Size: v.Controllers[0].Size}
			if f.deviceless {
				e.Endpoint = "nbd+unix:///" + v.Name
			}
			v.Controllers = append(v.Controllers, e)
		}
		v.VolumeAttachment.Attachments[id] = t
		if !v.Migratable {
			break // one node at a time
		}
	}
	if len(v.Controllers) > 1 {
		v.Controllers = v.Controllers[1:]
	}
	size, _ := strconv.ParseInt(v.Size, 10, 64)
	if f.room > 0 && size > f.room {
		v.Conditions = map[string]resource.Condition{"WaitForExpansion": {Status: "True", Message: "no room on disk d"}}
	} else if v.Controllers[0].Size != v.Size && f.due("grow "+v.Name+v.Size) {
		v.Controllers[0].Size = v.Size
	}
}

// versionOf is another one after each change of a volume, but for its tickets, which are an object
// of their own.
func versionOf(v *resource.Volume) string {
	o := *v
	o.ResourceVersion, o.VolumeAttachment = "", resource.VolumeAttachment{}
	text, err := json.Marshal(&o)
	if err != nil {
		panic(err)
	}
	h := fnv.New64a()
	h.Write(text)
	return strconv.FormatUint(h.Sum64(), 16)
}

func copied(v *resource.Volume) *resource.Volume {
	out := *v
	out.ResourceVersion = versionOf(v)
	out.Controllers = slices.Clone(v.Controllers)
	out.VolumeAttachment.Attachments = maps.Clone(v.VolumeAttachment.Attachments)
	return &out
}

func (f *fake) Volume(_ context.Context, name string) (*resource.Volume, error) {
	return do(f, func() (*resource.Volume, error) {
		v := f.volumes[name]
		if v == nil {
			return nil, notFound(name)
		}
		if v.State == stateDeleting && f.due("delete "+name) {
			delete(f.volumes, name)
			maps.DeleteFunc(f.snapshots, func(_ string, s *resource.SnapshotCR) bool { return s.Volume == name })
			return nil, notFound(name)
		}
		f.settle(v)
		return copied(v), nil
	})
}

func (f *fake) Volumes(context.Context) ([]resource.Volume, error) {
	return do(f, func() (all []resource.Volume, _ error) {
		for _, v := range f.volumes {
			f.settle(v)
			all = append(all, *copied(v))
		}
		return all, nil
	})
}

func (f *fake) CreateVolume(_ context.Context, s client.VolumeSpec) (*resource.Volume, error) {
	return do(f, func() (*resource.Volume, error) {
		if f.volumes[s.Name] != nil {
			return nil, refusal("volume %s already exists", s.Name)
		}
		f.orders++
		v := &resource.Volume{VolumeSpec: s, State: "creating",
			Controllers: []resource.Controller{{Size: s.Size}}}
		v.VolumeAttachment.Attachments = map[string]resource.Attachment{}
		f.volumes[s.Name] = v
		return copied(v), nil
	})
}

func (f *fake) DeleteVolumeAt(_ context.Context, name, version string) error {
	_, err := do(f, func() (any, error) {
		v := f.volumes[name]
		if v == nil {
			return nil, notFound(name)
		}
		if version != versionOf(v) {
			return nil, &client.Error{Status: http.StatusConflict, Message: "it has changed"}
		}
		f.volumes[name].State = stateDeleting
		return nil, nil
	})
	return err
}

func (f *fake) AttachVolume(_ context.Context, name string, in resource.AttachInput) (*resource.Volume, error) {
	return do(f, func() (*resource.Volume, error) {
		v := f.volumes[name]
		if v == nil {
			return nil, notFound(name)
		}
		if in.Withdrawals != nil && *in.Withdrawals != v.VolumeAttachment.Withdrawals {
			return nil, &client.Error{Status: http.StatusConflict, Message: "withdrawn meanwhile"}
		}
		f.generation++
		v.VolumeAttachment.Attachments[in.AttachmentID] = resource.Attachment{AttachmentID: in.AttachmentID,
			AttachmentType: in.AttacherType, NodeID: in.HostID, Generation: f.generation}
		return copied(v), nil
	})
}

func (f *fake) DetachVolume(_ context.Context, name string, in resource.DetachInput) (*resource.Volume, error) {
	return do(f, func() (*resource.Volume, error) {
		v := f.volumes[name]
		if v == nil {
			return nil, notFound(name)
		}
		if in.Generation == nil || v.VolumeAttachment.Attachments[in.AttachmentID].Generation == *in.Generation {
			v.VolumeAttachment.Withdrawals++
			delete(v.VolumeAttachment.Attachments, in.AttachmentID)
		}
		return copied(v), nil
	})
}

func (f *fake) ExpandVolume(_ context.Context, name, size string) (*resource.Volume, error) {
	return do(f, func() (*resource.Volume, error) {
		v := f.volumes[name]
		if v == nil {
			return nil, notFound(name)
		}
		if f.noGrowth > 0 {
			f.noGrowth--
			return nil, refusal("unable to expand volume %s: disk d of node-1 is full", name)
		}
		q := apiresource.MustParse(size)
		v.Size = strconv.FormatInt(q.Value(), 10)
		return copied(v), nil
	})
}

func (f *fake) CancelExpansion(_ context.Context, name string) (*resource.Volume, error) {
	return do(f, func() (*resource.Volume, error) {
		v := f.volumes[name]
		if v == nil {
			return nil, notFound(name)
		}
		if v.Size == v.Controllers[0].Size {
			return nil, refusal("volume expansion is not started")
		}
		v.Size, v.Conditions = v.Controllers[0].Size, nil
		return copied(v), nil
	})
}

func (f *fake) UpdateVolume(_ context.Context, name, action string, in any) (*resource.Volume, error) {
	return do(f, func() (*resource.Volume, error) {
		v := f.volumes[name]
		if v == nil {
			return nil, notFound(name)
		}
		f.updates = append(f.updates, fmt.Sprint(action, in))
		return copied(v), nil
	})
}

func (f *fake) OrderSnapshot(_ context.Context, volume string, in resource.SnapshotCRInput) (*resource.SnapshotCR,
	error) {
	return do(f, func() (*resource.SnapshotCR, error) {
		if f.snapshots[in.Name] != nil {
			return nil, refusal("snapshot %s already exists", in.Name)
		}
		f.orders++
		f.snapshots[in.Name] = &resource.SnapshotCR{Name: in.Name, Volume: volume, UserCreated: true, Labels: in.Labels}
		s := *f.snapshots[in.Name]
		return &s, nil
	})
}

func (f *fake) SnapshotObject(_ context.Context, _, name string) (*resource.SnapshotCR, error) {
	return do(f, func() (*resource.SnapshotCR, error) {
		s := f.snapshots[name]
		if s == nil || s.MarkRemoved && f.due("delete snapshot "+name) {
			delete(f.snapshots, name)
			return nil, notFound(name)
		}
		if f.due("snapshot " + name) {
			s.ReadyToUse, s.CreationTime = !s.MarkRemoved && s.Error == "", "2026-01-02T03:04:05Z"
			n, _ := strconv.ParseInt(f.volumes[s.Volume].Size, 10, 64)
			s.RestoreSize = n
		}
		out := *s
		return &out, nil
	})
}

func (f *fake) SnapshotObjects(_ context.Context, volume string) ([]resource.SnapshotCR, error) {
	return do(f, func() (all []resource.SnapshotCR, _ error) {
		if f.volumes[volume] == nil {
			return nil, notFound(volume)
		}
		for _, s := range f.snapshots {
			if s.Volume == volume {
				all = append(all, *s)
			}
		}
		return all, nil
	})
}

func (f *fake) DeleteSnapshotObject(_ context.Context, volume, name string) error {
	_, err := do(f, func() (any, error) {
		if s := f.snapshots[name]; s != nil && s.Volume != volume {
			return nil, refusal("it is a snapshot of volume %s", s.Volume)
		} else if s != nil {
			s.MarkRemoved, s.ReadyToUse = true, false
		}
		return nil, nil
	})
	return err
}

func (f *fake) BackUp(_ context.Context, volume string, in resource.SnapshotInput) (*resource.Volume, error) {
	return do(f, func() (*resource.Volume, error) {
		if f.noTarget {
			return nil, refusal("backup target default is not available")
		}
		f.orders++
		name := fmt.Sprintf("backup-%d", f.orders)
		f.backups[name] = &resource.Backup{Name: name, VolumeName: volume, SnapshotName: in.Name, State: "InProgress",
			BackupMode: in.BackupMode}
		return copied(f.volumes[volume]), nil
	})
}

// progress completes a backup that was looked at often enough.
func (f *fake) progress(b *resource.Backup) resource.Backup {
	if b.State == "InProgress" && f.due("back up "+b.Name) {
		b.State, b.URL = "Completed", "s3://b@r/?backup="+b.Name+"&volume="+b.VolumeName
		v := f.volumes[b.VolumeName]
		b.SnapshotCreated, b.VolumeSize = "2026-01-02T03:04:05Z", v.Size
		if v.Encrypted {
			size, _ := strconv.ParseInt(v.Size, 10, 64)
			b.VolumeSize = strconv.FormatInt(size+lh.LUKSHeaderBytes, 10)
			b.Labels = map[string]string{naming.LabelVolumeEncrypted: "true"}
		}
	}
	return *b
}

func (f *fake) Backup(_ context.Context, name string) (*resource.Backup, error) {
	return do(f, func() (*resource.Backup, error) {
		b := f.backups[name]
		if b == nil || b.State == "Deleting" && f.due("delete backup "+name) {
			delete(f.backups, name)
			return nil, notFound(name)
		}
		out := f.progress(b)
		return &out, nil
	})
}

func (f *fake) Backups(ctx context.Context, _, volume string) ([]resource.Backup, error) {
	return f.AllBackups(ctx, volume)
}

func (f *fake) AllBackups(_ context.Context, volume string) ([]resource.Backup, error) {
	return do(f, func() (all []resource.Backup, _ error) {
		for _, b := range f.backups {
			if volume == "" || b.VolumeName == volume {
				all = append(all, f.progress(b))
			}
		}
		return all, nil
	})
}

func (f *fake) DeleteBackup(_ context.Context, name string) error {
	_, err := do(f, func() (any, error) {
		if b := f.backups[name]; b != nil {
			b.State = "Deleting"
		}
		return nil, nil
	})
	return err
}

func (f *fake) Node(_ context.Context, name string) (*resource.Node, error) {
	return do(f, func() (*resource.Node, error) {
		for i := range f.nodes {
			if f.nodes[i].Name == name {
				return &f.nodes[i], nil
			}
		}
		return nil, notFound(name)
	})
}

func (f *fake) Nodes(context.Context) ([]resource.Node, error) {
	return do(f, func() ([]resource.Node, error) { return f.nodes, nil })
}

func (f *fake) Setting(_ context.Context, name string) (*resource.Setting, error) {
	return do(f, func() (*resource.Setting, error) {
		value, ok := f.settings[name]
		if !ok {
			return nil, refusal("no setting %s", name)
		}
		return &resource.Setting{Name: name, Value: value,
			Definition: resource.SettingDefinition{DataEngineSpecific: strings.HasPrefix(value, "{")}}, nil
	})
}

func newController(f *fake) *Server {
	return &Server{manager: f, patience: 10 * time.Second, log: slog.New(slog.DiscardHandler)}
}

// createRequest is for a volume with a file system, of one node.
func createRequest(name string, sizeBytes int64) *spec.CreateVolumeRequest {
	return &spec.CreateVolumeRequest{Name: name, CapacityRange: &spec.CapacityRange{RequiredBytes: sizeBytes},
		VolumeCapabilities: []*spec.VolumeCapability{csitest.Capability("ext4", csitest.Once)}}
}

// ordered is a volume that was created by the controller.
func ordered(t *testing.T, c *Server, r *spec.CreateVolumeRequest) *spec.Volume {
	t.Helper()
	resp, err := c.CreateVolume(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Volume
}
