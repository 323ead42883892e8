package node

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/mount-utils"
	"k8s.io/utils/exec"

	"ankole.storage/csi/request"
	"ankole.storage/host/luks"
)

// staging is a NodeStageVolume call, judged.
type staging struct {
	request.Usage
	// device is the one with the file system: own, or the mapper device of an encrypted volume.
	device, own device
	path        string
	encrypted   bool
	key         luks.Key
	// keyless is why there is no key to an encrypted volume.
	keyless error
	// mkfs are further arguments of mkfs.
	mkfs []string
	// content is why the volume is known to have content; empty: it is not known.
	content string
}

// NodeStageVolume implements the node service: a file system of the volume is mounted at a path
// that all Pods of the node share. Of a raw block volume there is nothing to prepare but its
// device.
func (n *Server) NodeStageVolume(ctx context.Context, r *spec.NodeStageVolumeRequest) (*spec.NodeStageVolumeResponse,
	error) {
	s, err := judgeStaging(r)
	if err != nil {
		return nil, err
	}
	if s.keyless != nil {
		return nil, s.keyless
	}
	if err := n.work(ctx, r.GetVolumeId(), "NodeStageVolume", func() error {
		return n.stageVolume(r.GetVolumeId(), s)
	}); err != nil {
		return nil, err
	}
	return &spec.NodeStageVolumeResponse{}, nil
}

func (n *Server) stageVolume(volume string, s staging) (err error) {
	if s.own, err = lookup(volume); err != nil {
		return err
	}
	n.step("stage-begun")
	if err = n.open(&s); err == nil && s.encrypted && !s.ReadOnly {
		_, err = vault{n}.fit(s.own, s.device, s.key, s.keyless)
	}
	if err != nil {
		return err
	}
	// A former user may have left it read-only, or writable. Those who have it now have it as they
	// shall.
	used, err := s.device.publications(s.path)
	if err == nil && len(used) == 0 {
		err = s.device.setReadOnly(s.ReadOnly && s.Block)
	}
	if err != nil {
		return status.Errorf(codes.Internal, "%v", err)
	}
	if !s.Block {
		err = n.stage(s)
	}
	if err != nil {
		return err
	}
	n.step("staged")
	return nil
}

// open finds the device with the file system.
func (n *Server) open(s *staging) (err error) {
	s.device = s.own
	if s.encrypted {
		s.device, err = vault{n}.unlock(s.own, s)
	}
	return err
}

func judgeStaging(r *spec.NodeStageVolumeRequest) (s staging, err error) {
	if r.GetVolumeId() == "" || r.GetStagingTargetPath() == "" {
		return s, request.Refuse("a volume id and a staging path are needed")
	}
	if s.Usage, err = request.UsageOf(r.GetVolumeCapability()); err != nil {
		return s, err
	}
	w, err := request.ParseContext(r.GetVolumeContext())
	if err != nil {
		return s, err
	}
	if s.FSType == "" {
		s.FSType = w.FSType
	}
	if s.FSType == "" {
		s.FSType = request.Ext4
	}
	if err := s.Usage.CheckAllowed(s.FSType, w.Mkfs); err != nil {
		return s, err
	}
	s.path, s.mkfs = r.GetStagingTargetPath(), w.Mkfs
	s.content = r.GetPublishContext()[request.ContextContent]
	if s.encrypted = isEncrypted(w, r.GetPublishContext()); s.encrypted {
		s.key, s.keyless = request.ReadKey(r.GetSecrets())
	}
	return s, nil
}

// isEncrypted reports whether a volume is, by the class that it was made of or by the manager. A
// PersistentVolume that a person has made may lack the parameter, and nothing may be written to
// such a volume without a key.
func isEncrypted(class request.Wish, publishContext map[string]string) bool {
	return class.Volume.Encrypted || publishContext[request.ContextEncrypted] != ""
}

// stage mounts the file system, which is made first on a device that holds nothing.
func (n *Server) stage(s staging) error {
	there, err := n.stagedAlready(s)
	if err != nil {
		return err
	}
	if !there {
		if err := n.prepare(s); err != nil {
			return err
		}
		if err := os.MkdirAll(s.path, 0o750); err != nil {
			return status.Errorf(codes.Internal, "staging path: %v", err)
		}
		options := s.Flags
		if s.FSType == request.XFS {
			// A clone has the UUID of its source, which may be mounted on this node too.
			options = append([]string{"nouuid"}, options...)
		}
		if s.ReadOnly {
			options = append(slices.Clone(options), "ro") // the last one counts
		}
		if err := n.mounts.Mount(s.device.path, s.path, s.FSType, options); err != nil {
			return status.Errorf(codes.Internal,
				"mounting volume %s (if its file system is damaged, run the check of %s on %s): %v",
				s.device.name(), s.FSType, s.device.shown(), err)
		}
		n.step("staged-mounted")
	}
	if s.ReadOnly {
		return nil
	}
	return n.resize(s.device, s.path)
}

// stagedAlready reports whether the path has the file system already. What else is there is the
// rest of an earlier device of the volume, or does not answer any more: it is taken away.
func (n *Server) stagedAlready(s staging) (bool, error) {
	at, err := mounted(s.path)
	if err != nil {
		return false, status.Errorf(codes.Internal, "staging path: %v", err)
	}
	if len(at) == 0 {
		return false, nil
	}
	last := &at[len(at)-1]
	if last.Device == deviceText(s.device.number) {
		dead, err := broken(s.path, last)
		switch {
		case err != nil:
			return false, status.Errorf(codes.Internal, "staging path: %v", err)
		case dead:
		case last.ReadOnly() != s.ReadOnly:
			return false, status.Errorf(codes.AlreadyExists, "the volume is staged at %s, read-only: %v, wanted: %v", s.path,
				last.ReadOnly(), s.ReadOnly)
		default:
			return true, nil
		}
	}
	n.log.Warn("what is mounted at a staging path is not the volume any more, it is taken away", "path", s.path,
		"mounted", last.Source)
	if _, err := unmountAll(s.path); err != nil {
		return false, status.Errorf(codes.Internal, "%v", err)
	}
	return false, nil
}

// prepare has a file system on the device that can be mounted: made, or checked.
func (n *Server) prepare(s staging) error {
	c, err := n.lookAt(s)
	if err != nil {
		return status.Errorf(codes.Internal, "looking what is on %s: %v; nothing is changed", s.device.path, err)
	}
	switch {
	case (c.format == "" || c.half) && s.ReadOnly:
		return status.Errorf(codes.FailedPrecondition,
			"the volume has no file system, and is to be read only: write to it first")
	case c.format == "" || c.half:
		if err := c.mayFormat(s.device, s.content); err != nil {
			return err
		}
		return n.mkfs(s, c.half)
	case c.format != s.FSType:
		return status.Errorf(codes.FailedPrecondition, "the volume holds %s, wanted is a file system %s: nothing is changed",
			c.format, s.FSType)
	case s.ReadOnly:
		return nil
	}
	return n.fsck(s)
}

// lookAt says what the device with the file system holds.
func (n *Server) lookAt(s staging) (content, error) {
	if s.encrypted {
		return vault{n}.lookBehind(s.own, s.device)
	}
	return n.look(s.device)
}

// mkfs makes a file system. Nothing forces the programs, which refuse a device that is mounted, and
// mkfs.xfs one with content; it is forced only over what itself has left.
func (n *Server) mkfs(s staging, half bool) error {
	wanted := s.mkfs
	args := map[string][]string{request.Ext4: {"-m0"}}[s.FSType]
	switch {
	case !half:
		wanted = withoutDiscard(s.FSType, wanted) // nothing is there that could be given back
	case s.FSType == request.XFS:
		args = []string{"-f"}
	}
	args = append(append(slices.Clone(wanted), args...), s.device.path)
	n.log.Info("making a file system", "device", s.device.path, "type", s.FSType, "arguments", args)
	out, err := n.run.Command("mkfs."+s.FSType, args...).CombinedOutput()
	if err != nil {
		return status.Errorf(codes.Internal, "mkfs.%s %s: %v: %s", s.FSType, strings.Join(args, " "), err, out)
	}
	n.step("formatted")
	return nil
}

// withoutDiscard adds to the arguments of mkfs that the device is not discarded first, unless they
// say something about it.
func withoutDiscard(fsType string, wanted []string) []string {
	args := slices.Clone(wanted)
	if fsType == request.XFS {
		if slices.Contains(args, "-K") {
			return args
		}
		return append(args, "-K")
	}
	if fsType != request.Ext4 || slices.Contains(args, "-K") {
		return args
	}
	for i, a := range args { // mke2fs takes the last -E only
		at := i
		if a == "-E" && i+1 < len(args) {
			at = i + 1
		} else if !strings.HasPrefix(a, "-E") || a == "-E" {
			continue
		}
		if !strings.Contains(args[at], "discard") {
			args[at] += ",nodiscard"
		}
		return args
	}
	return append(args, "-E", "nodiscard")
}

// Exit status of fsck: a sum of bits, see fsck(8).
const (
	fsckCorrected = 1
	fsckReboot    = 2
)

// fsck replays the journal and mends what is safe to mend. A file system that is mounted elsewhere
// on this node is in order as far as the kernel knows, and must not be touched.
func (n *Server) fsck(s staging) error {
	used, err := s.device.others()
	if err != nil {
		return status.Errorf(codes.Internal, "%v", err)
	}
	if len(used) > 0 {
		return nil
	}
	out, err := n.run.Command("fsck", "-a", s.device.path).CombinedOutput()
	exit, failed := err.(exec.ExitError)
	switch {
	case err == nil:
	case failed && exit.ExitStatus()&^(fsckCorrected|fsckReboot) == 0:
		n.log.Warn("the check of a file system has mended it", "device", s.device.path, "output", string(out))
	default:
		return status.Errorf(codes.Internal, "fsck -a %s: %v: %s; a person has to look at it: attach the volume by hand and "+
			"run fsck", s.device.path, err, out)
	}
	n.step("checked")
	return nil
}

// resize has a mounted file system take all of its device.
func (n *Server) resize(d device, path string) error {
	grow := mount.NewResizeFs(n.run)
	needs, err := grow.NeedResize(d.path, path)
	if err == nil && needs {
		_, err = grow.Resize(d.path, path)
	}
	if err != nil {
		return status.Errorf(codes.Internal, "growing the file system at %s: %v", path, err)
	}
	n.step("resized")
	return nil
}

// NodeUnstageVolume implements the node service. It does not need the device, which may be gone.
func (n *Server) NodeUnstageVolume(ctx context.Context, r *spec.NodeUnstageVolumeRequest) (
	*spec.NodeUnstageVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetStagingTargetPath() == "" {
		return nil, request.Refuse("a volume id and a staging path are needed")
	}
	if err := n.work(ctx, r.GetVolumeId(), "NodeUnstageVolume", func() error {
		return n.unstage(r.GetVolumeId(), r.GetStagingTargetPath())
	}); err != nil {
		return nil, err
	}
	return &spec.NodeUnstageVolumeResponse{}, nil
}

func (n *Server) unstage(volume, path string) error {
	left, err := unmountAll(path)
	if err == nil {
		n.step("unmounted")
		var gone bool
		gone, err = n.leave(volume)
		left = left || gone
	}
	if err == nil {
		err = vault{n}.lock(volume, left)
	}
	if err == nil && !left {
		err = n.released(volume)
	}
	n.tell(volume, err)
	if err != nil {
		return status.Errorf(codes.Internal, "%v", err)
	}
	if d, err := lookup(volume); err == nil {
		n.freeDevice(d)
	}
	n.step("unstaged")
	return nil
}

// leave is letGo for the device of a volume with the file system; gone: it need not wait for those
// who have that mounted.
func (n *Server) leave(volume string) (gone bool, err error) {
	_, d, err := n.current(volume)
	if status.Code(err) == codes.NotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return n.letGo(d)
}

// released refuses while somebody has the device of the volume for itself: a file system that is
// mounted somewhere, or a device that is made of it. The answer to NodeUnstageVolume lets the
// volume leave the node, with all that was not written back.
func (n *Server) released(volume string) error {
	d, err := lookup(volume)
	if status.Code(err) == codes.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	return n.free(d)
}

// free is released for one of the devices of a volume.
func (n *Server) free(d device) error {
	// A device that is bound somewhere is nobody's for itself.
	targets, err := d.publications()
	if err != nil {
		return err
	}
	if len(targets) > 0 {
		return fmt.Errorf("device %s is in use: the volume is still published or mounted at %s", d.shown(),
			strings.Join(targets, ", "))
	}
	used, err := d.inUse()
	if err != nil || !used {
		return err
	}
	if err := n.releaseMappings(d.number, 0); err != nil {
		return err
	}
	if used, err = d.inUse(); err != nil || !used {
		return err
	}
	by, err := n.user(d)
	if err != nil {
		return err
	}
	return fmt.Errorf("device %s is in use: %s", d.shown(), by)
}

// NodeExpandVolume implements the node service: the file system takes the device's new size while
// it is used.
func (n *Server) NodeExpandVolume(ctx context.Context, r *spec.NodeExpandVolumeRequest) (*spec.NodeExpandVolumeResponse,
	error) {
	path := r.GetVolumePath()
	if r.GetVolumeId() == "" || path == "" {
		return nil, request.Refuse("a volume id and a volume path are needed")
	}
	var have int64
	if err := n.work(ctx, r.GetVolumeId(), "NodeExpandVolume", func() (err error) {
		have, err = n.expand(r)
		return err
	}); err != nil {
		return nil, err
	}
	return &spec.NodeExpandVolumeResponse{CapacityBytes: have}, nil
}

// expand returns the size of the device once it is the wanted one and the file system has it.
func (n *Server) expand(r *spec.NodeExpandVolumeRequest) (have int64, err error) {
	path, wanted := r.GetVolumePath(), r.GetCapacityRange().GetRequiredBytes()
	ctx, cancel := context.WithTimeout(context.Background(), n.patience)
	defer cancel()
	own, d, err := n.current(r.GetVolumeId())
	if err != nil {
		return 0, err
	}
	at, err := n.published(d, path)
	if err != nil {
		return 0, err
	}
	if d.mapped {
		k, keyless := request.ReadKey(r.GetSecrets())
		have, err = vault{n}.expandMapper(ctx, own, d, wanted, k, keyless)
	} else {
		have, err = d.awaitSize(ctx, wanted)
	}
	if err != nil {
		return 0, err
	}
	if at == nil {
		return have, nil
	}
	if at.ReadOnly() && at.Refuses() != "" {
		return 0, status.Errorf(codes.FailedPrecondition, "the file system at %s is read-only and cannot grow", path)
	}
	return have, n.resize(d, path)
}
