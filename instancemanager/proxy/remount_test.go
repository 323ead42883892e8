package proxy

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/instancemanager/filesystem"
	"ankole.storage/test/wait"
)

// fakeSystems are file systems that answer by the volume's name.
type fakeSystems struct{ hung chan struct{} }

func (f *fakeSystems) Remount(volume string) error {
	switch volume {
	case "hangs":
		<-f.hung
		return nil
	case "unmounted":
		return fmt.Errorf("volume %s is %w", volume, filesystem.ErrNotMounted)
	case "busy":
		return fmt.Errorf("volume %s: %w", volume, filesystem.ErrBusy)
	case "broken":
		return filesystem.ErrRefused
	case "a/b":
		return filesystem.ErrInvalid
	case "odd":
		return fmt.Errorf("odd")
	}
	return nil
}

func (f *fakeSystems) Trim(volume string) (int64, error) { return 4096, f.Remount(volume) }

func (f *fakeSystems) Quiesce(context.Context, string, bool) func() { return func() {} }

// What the kernel says has a code; work that does not end goes on when its caller has left.
func TestWorkOnFileSystems(t *testing.T) {
	nothing := &Engines{}
	if _, err := nothing.trim(t.Context(), "v"); status.Code(err) != codes.Unimplemented {
		t.Errorf("a trim where nothing is mounted: %v", err)
	}
	_, err := (&service{engines: nothing}).RemountReadOnlyVolume(t.Context(), &imrpc.RemountVolumeRequest{VolumeName: "v"})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("a remount where nothing is mounted: %v", err)
	}
	f := &fakeSystems{hung: make(chan struct{})}
	e := &Engines{Systems: f}
	s := &service{engines: e}
	for what, do := range map[string]func(ctx context.Context, volume string) error{
		"remount": func(ctx context.Context, volume string) error {
			_, err := s.RemountReadOnlyVolume(ctx, &imrpc.RemountVolumeRequest{VolumeName: volume})
			return err
		},
		"trim": func(ctx context.Context, volume string) error {
			_, err := e.trim(ctx, volume)
			return err
		},
	} {
		call := func(ctx context.Context, volume string) codes.Code { return status.Code(do(ctx, volume)) }
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if c := call(short, "hangs"); c != codes.DeadlineExceeded {
			t.Error(what, c)
		}
		for volume, want := range map[string]codes.Code{"busy": codes.Aborted, "unmounted": codes.NotFound,
			"broken": codes.FailedPrecondition,
			"a/b":    codes.InvalidArgument, "odd": codes.Internal, "fine": codes.OK} {
			if c := call(t.Context(), volume); c != want {
				t.Errorf("%s %s: %s, want %s", what, volume, c, want)
			}
		}
		select {
		case f.hung <- struct{}{}:
		case <-wait.Late():
			wait.RanOut(t, what+" goes on")
			t.Fatal(what, ": it has not gone on")
		}
	}
}
