package node

import (
	"context"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/mount-utils"

	"ankole.storage/csi/request"
	"ankole.storage/host/mountinfo"
)

// NodeGetVolumeStats implements the node service.
func (n *Server) NodeGetVolumeStats(ctx context.Context, r *spec.NodeGetVolumeStatsRequest) (
	*spec.NodeGetVolumeStatsResponse, error) {
	path := r.GetVolumePath()
	if r.GetVolumeId() == "" || path == "" {
		return nil, request.Refuse("a volume id and a volume path are needed")
	}
	// Beside other calls of the volume, but one look at a path at a time.
	var out *spec.NodeGetVolumeStatsResponse
	if err := n.work(ctx, r.GetVolumeId()+" at "+path, "NodeGetVolumeStats", func() (err error) {
		out, err = n.stats(r.GetVolumeId(), path)
		return err
	}); err != nil {
		return nil, err
	}
	return out, nil
}

func (n *Server) stats(volume, path string) (*spec.NodeGetVolumeStatsResponse, error) {
	_, d, err := n.current(volume)
	if err != nil {
		return nil, err
	}
	at, err := n.published(d, path)
	if err != nil {
		return nil, err
	}
	if at == nil {
		total, err := d.size()
		if err != nil {
			return nil, status.Errorf(codes.Internal, "%v", err)
		}
		return &spec.NodeGetVolumeStatsResponse{Usage: []*spec.VolumeUsage{{Unit: spec.VolumeUsage_BYTES, Total: total}},
			VolumeCondition: fine()}, nil
	}
	var st unix.Statfs_t
	switch err := unix.Statfs(path, &st); {
	case mount.IsCorruptedMnt(err):
		return &spec.NodeGetVolumeStatsResponse{VolumeCondition: &spec.VolumeCondition{Abnormal: true,
			Message: "the file system at " + path + " does not answer: " + err.Error()}}, nil
	case err != nil:
		return nil, status.Errorf(codes.Internal, "file system at %s: %v", path, err)
	}
	told, err := condition(d, path, at)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "%v", err)
	}
	block := st.Bsize
	return &spec.NodeGetVolumeStatsResponse{Usage: []*spec.VolumeUsage{
		{Unit: spec.VolumeUsage_BYTES, Total: int64(st.Blocks) * block, Available: int64(st.Bavail) * block,
			Used: int64(st.Blocks-st.Bfree) * block},
		{Unit: spec.VolumeUsage_INODES, Total: int64(st.Files), Available: int64(st.Ffree), Used: int64(st.Files - st.Ffree)},
	}, VolumeCondition: told}, nil
}

// condition says what this node sees of a file system of a volume.
func condition(d device, path string, at *mountinfo.Mount) (*spec.VolumeCondition, error) {
	dead, err := broken(path, at)
	switch {
	case err != nil:
		return nil, err
	case dead:
		return &spec.VolumeCondition{Abnormal: true,
			Message: "the file system at " + path + " does not answer any more: the Pod has to be started anew"}, nil
	case at.Refuses() != "" && !at.ReadOnly():
		return &spec.VolumeCondition{Abnormal: true, Message: "the file system on " + d.path +
			" takes no writes any more (" + at.Refuses() + "): the Pod has to be started anew"}, nil
	}
	return fine(), nil
}

func fine() *spec.VolumeCondition { return &spec.VolumeCondition{Message: "nothing is wrong"} }
