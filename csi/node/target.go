package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ankole.storage/csi/request"
	"ankole.storage/host/mountinfo"
)

// publication is a NodePublishVolume call, judged.
type publication struct {
	request.Usage
	device          device
	staging, target string
	readOnly        bool
	encrypted       bool
	// stagedBy is the call that has staged the volume, as far as this one tells it.
	stagedBy *spec.NodeStageVolumeRequest
}

// NodePublishVolume implements the node service: what is staged appears in a Pod.
func (n *Server) NodePublishVolume(ctx context.Context, r *spec.NodePublishVolumeRequest) (
	*spec.NodePublishVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetTargetPath() == "" {
		return nil, request.Refuse("a volume id and a target path are needed")
	}
	p := publication{staging: r.GetStagingTargetPath(), target: r.GetTargetPath(),
		stagedBy: &spec.NodeStageVolumeRequest{VolumeId: r.GetVolumeId(), StagingTargetPath: r.GetStagingTargetPath(),
			VolumeCapability: r.GetVolumeCapability(), VolumeContext: r.GetVolumeContext(),
			PublishContext: r.GetPublishContext(), Secrets: r.GetSecrets()}}
	var err error
	if p.Usage, err = request.UsageOf(r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	p.readOnly = r.GetReadonly() || p.Usage.ReadOnly
	// The claim of such a volume may be for one node, and the kubelet knows nothing of the class.
	class, err := request.ParseContext(r.GetVolumeContext())
	if err != nil {
		return nil, err
	}
	p.encrypted = isEncrypted(class, r.GetPublishContext())
	if class.Exclusive {
		p.Mode = request.ModeOncePod
	}
	if err := n.work(ctx, r.GetVolumeId(), "NodePublishVolume", func() error {
		return n.publish(r.GetVolumeId(), p)
	}); err != nil {
		return nil, err
	}
	return &spec.NodePublishVolumeResponse{}, nil
}

func (n *Server) publish(volume string, p publication) (err error) {
	if p.device, err = n.openPublished(volume, &p); err != nil {
		return err
	}
	// First what is there: a repeated call is answered whatever else has come to be meanwhile.
	there, err := n.publishedAlready(p)
	if err == nil && !there && p.SinglePod() {
		err = p.alone()
	}
	if err != nil {
		return err
	}
	switch {
	case there:
	case p.Block:
		err = n.publishDevice(p)
	default:
		err = n.publishFileSystem(p)
	}
	if err != nil {
		return err
	}
	n.step("published")
	return nil
}

// openPublished finds the device with the file system, or the one that a Pod gets. An encrypted
// volume whose device has ended since it was staged is opened again; it is never formatted here.
func (n *Server) openPublished(volume string, p *publication) (device, error) {
	own, err := lookup(volume)
	if err != nil || !p.encrypted {
		return own, err
	}
	s, err := p.again()
	if err != nil {
		return own, err
	}
	s.own = own
	err = n.open(&s)
	return s.device, err
}

// again is the call that has staged the volume, for which nothing is formatted any more.
func (p *publication) again() (staging, error) {
	s, err := judgeStaging(p.stagedBy)
	if s.content == "" {
		s.content = "a file system is made when the volume is staged, and never when it is published"
	}
	return s, err
}

// alone refuses a second target of a volume that one Pod may use.
func (p *publication) alone() error {
	targets, err := p.device.publications(p.staging, p.target)
	if err != nil {
		return status.Errorf(codes.Internal, "%v", err)
	}
	if len(targets) > 0 {
		return status.Errorf(codes.FailedPrecondition, "the volume is for one Pod, and is published at %v", targets)
	}
	return nil
}

// publishedAlready reports whether the target is what is wanted. A call that was cut short may have
// left it writable.
func (n *Server) publishedAlready(p publication) (bool, error) {
	at, err := mounted(p.target)
	if err != nil {
		return false, status.Errorf(codes.Internal, "target path: %v", err)
	}
	if len(at) == 0 {
		return false, nil
	}
	last := &at[len(at)-1]
	stale := !p.device.holds(p.target, last)
	if !stale && !p.Block {
		if stale, err = broken(p.target, last); err != nil {
			return false, status.Errorf(codes.Internal, "target path: %v", err)
		}
	}
	switch {
	case stale:
		n.log.Warn("what is mounted at a target path is not the volume any more, it is taken away", "path", p.target,
			"mounted", last.Source)
	case last.ReadOnly() && !p.readOnly:
		return false, status.Errorf(codes.AlreadyExists, "the volume is published at %s read-only, wanted is writable",
			p.target)
	case !last.ReadOnly() && p.readOnly:
		n.log.Info("a target path is still writable, it is mounted again", "path", p.target)
	default:
		return true, nil
	}
	if _, err := unmountAll(p.target); err != nil {
		return false, status.Errorf(codes.Internal, "%v", err)
	}
	return false, nil
}

// stageAgain stages a volume whose device has ended while it was staged, or whose file system was
// shut down: for a new Pod on the same node the kubelet may call NodePublishVolume alone. A call
// that did so and was cut short may have left nothing at the staging path. at is what is mounted
// there. No file system is made.
func (n *Server) stageAgain(p publication, at []mountinfo.Mount) error {
	if len(at) > 0 && at[len(at)-1].Device == deviceText(p.device.number) {
		dead, err := broken(p.staging, &at[len(at)-1])
		if err != nil {
			return status.Errorf(codes.Internal, "staging path: %v", err)
		}
		if !dead {
			return nil
		}
	}
	s, err := p.again()
	if err != nil {
		return err
	}
	if s.own, err = lookup(p.device.name()); err != nil {
		return err
	}
	s.device = p.device
	return n.stage(s)
}

// publishFileSystem binds the staged file system to the target.
func (n *Server) publishFileSystem(p publication) error {
	if p.staging == "" {
		return status.Error(codes.FailedPrecondition, "no staging path is given: the volume has to be staged first")
	}
	at, err := mounted(p.staging)
	if err != nil {
		return status.Errorf(codes.Internal, "staging path: %v", err)
	}
	if err := n.stageAgain(p, at); err != nil {
		return err
	}
	if err := os.MkdirAll(p.target, 0o750); err != nil {
		return status.Errorf(codes.Internal, "target path: %v", err)
	}
	n.step("target-made")
	return n.bind(p, p.staging)
}

// publishDevice binds the device to a file.
func (n *Server) publishDevice(p publication) error {
	// The mount says nothing about writes to a device. Beside a writer of the same node, only the
	// container's own permission can keep a reader from writing.
	targets, err := p.device.publications(p.target)
	if err == nil && (len(targets) == 0 || !p.readOnly) {
		err = p.device.setReadOnly(p.readOnly)
	}
	if err != nil {
		return status.Errorf(codes.Internal, "%v", err)
	}
	if err := os.MkdirAll(filepath.Dir(p.target), 0o750); err != nil {
		return status.Errorf(codes.Internal, "target path: %v", err)
	}
	f, err := os.OpenFile(p.target, os.O_CREATE|os.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o640)
	if err != nil {
		return status.Errorf(codes.Internal, "target path: %v", err)
	}
	f.Close()
	n.step("target-made")
	return n.bind(p, p.device.path)
}

func (n *Server) bind(p publication, from string) error {
	options := []string{"bind"}
	if p.readOnly {
		options = append(options, "ro")
	}
	if err := n.mounts.Mount(from, p.target, "", options); err != nil {
		return status.Errorf(codes.Internal, "binding %s to %s: %v", from, p.target, err)
	}
	return nil
}

// NodeUnpublishVolume implements the node service. It does not need the device, which may be gone.
func (n *Server) NodeUnpublishVolume(ctx context.Context, r *spec.NodeUnpublishVolumeRequest) (
	*spec.NodeUnpublishVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetTargetPath() == "" {
		return nil, request.Refuse("a volume id and a target path are needed")
	}
	if err := n.work(ctx, r.GetVolumeId(), "NodeUnpublishVolume", func() error {
		return n.unpublish(r.GetVolumeId(), r.GetTargetPath())
	}); err != nil {
		return nil, err
	}
	return &spec.NodeUnpublishVolumeResponse{}, nil
}

func (n *Server) unpublish(volume, target string) error {
	_, d, err := n.current(volume)
	wasDevice := err == nil && d.isAt(target)
	if _, err := unmountAll(target); err != nil {
		return status.Errorf(codes.Internal, "%v", err)
	}
	n.step("unpublished")
	if wasDevice {
		n.freeDevice(d)
	}
	// Remove and not RemoveAll: what is in the way is nothing that this driver has made.
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return status.Errorf(codes.Internal, "target path: %v", err)
	}
	return nil
}

// freeDevice has the kernel take writes again to a device that was read-only for its readers, when
// none is left: whoever comes next, by CSI or not, may be a writer.
func (n *Server) freeDevice(d device) {
	left, err := d.publications()
	if err == nil && len(left) == 0 {
		err = d.setReadOnly(false)
	}
	if err != nil {
		n.log.Warn("the device may be left read-only", "device", d.path, "error", err)
	}
}

// published finds the volume at a path that a caller names: the mount of its file system, or nil
// for its device. NOT_FOUND: it is not there.
func (n *Server) published(d device, path string) (*mountinfo.Mount, error) {
	if d.isAt(path) {
		return nil, nil
	}
	at, err := mounted(path)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "volume path: %v", err)
	}
	if len(at) > 0 {
		if last := &at[len(at)-1]; last.Device == deviceText(d.number) {
			return last, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "volume %s is not at %s", filepath.Base(d.path), path)
}
