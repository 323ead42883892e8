package csi

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"ankole.storage/host/mountinfo"
	"ankole.storage/test/wait"
)

// TestNodeCallsEnd: a volume that does not answer costs a call its patience and no more; further
// calls are told that one is under way, and its end is theirs. Other volumes are served.
func TestNodeCallsEnd(t *testing.T) {
	t.Parallel()
	n := newNode("node-1", newFake(), 50*time.Millisecond, quiet())
	hang := make(chan struct{})
	calls := map[string]func(volume string) error{
		"NodeStageVolume": func(v string) error {
			_, err := n.NodeStageVolume(background, &spec.NodeStageVolumeRequest{VolumeId: v, StagingTargetPath: "/none/s",
				VolumeCapability: capability("ext4", once)})
			return err
		},
		"NodePublishVolume": func(v string) error {
			_, err := n.NodePublishVolume(background, &spec.NodePublishVolumeRequest{VolumeId: v, TargetPath: "/none/t",
				VolumeCapability: capability("ext4", once)})
			return err
		},
		"NodeUnpublishVolume": func(v string) error {
			_, err := n.NodeUnpublishVolume(background, &spec.NodeUnpublishVolumeRequest{VolumeId: v, TargetPath: "/none/t"})
			return err
		},
		"NodeUnstageVolume": func(v string) error {
			_, err := n.NodeUnstageVolume(background, &spec.NodeUnstageVolumeRequest{VolumeId: v, StagingTargetPath: "/none/s"})
			return err
		},
		"NodeExpandVolume": func(v string) error {
			_, err := n.NodeExpandVolume(background, &spec.NodeExpandVolumeRequest{VolumeId: v, VolumePath: "/none/t"})
			return err
		},
	}
	wants(t, n.work(background, "vol-1", "a call", func() error { <-hang; return nil }), codes.DeadlineExceeded)
	for name, call := range calls {
		err := call("vol-1")
		wants(t, err, codes.Aborted)
		says(t, err, name, "a call of it is under way")
		if err := call("vol-2"); err != nil {
			wants(t, err, codes.NotFound) // no such device
		}
	}
	close(hang)
	wait.Until(t, "the lock is free again", func() bool { return calls["NodeUnstageVolume"]("vol-1") == nil })
	gone, cancel := context.WithCancel(background)
	cancel()
	release := make(chan struct{})
	defer close(release)
	wants(t, n.work(gone, "vol-3", "a call", func() error { <-release; return nil }), codes.DeadlineExceeded)
}

// TestHelperIsFirst: a helper does its work before the packages that take long are initialised.
func TestHelperIsFirst(t *testing.T) {
	t.Parallel()
	initialised := func(args ...string) string {
		cmd := exec.Command("/proc/self/exe")
		cmd.Args = args
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "\ninit os @") {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
		return string(out)
	}
	late := regexp.MustCompile(`(?m)^init (k8s\.io/client-go|sigs\.k8s\.io)/.*`)
	if whole := initialised(os.Args[0], "-test.list=^$"); !late.MatchString(whole) {
		t.Fatalf("this program has no packages that would come late: %s", whole)
	}
	for _, found := range late.FindAllString(initialised("ankole-csi-helper", "look", t.TempDir(), "0"), -1) {
		// Of the REST server, which these tests have and the program has not: it makes a channel.
		if !strings.HasPrefix(found, "init sigs.k8s.io/controller-runtime/pkg/manager/signals @") {
			t.Errorf("before a helper: %s", found)
		}
	}
}

// TestUnknownIsNotBroken: a mount at which no helper could look is not taken for broken.
func TestUnknownIsNotBroken(t *testing.T) {
	t.Parallel()
	const unstartable = "a\x00b" // no process can be started with such an argument
	if dead, err := broken(unstartable, &mountinfo.Mount{}); dead || err == nil {
		t.Errorf("%v, %v", dead, err)
	}
	if dead, err := broken(unstartable, &mountinfo.Mount{Super: []string{"shutdown"}}); !dead || err != nil {
		t.Errorf("shut down: %v, %v", dead, err)
	}
}
