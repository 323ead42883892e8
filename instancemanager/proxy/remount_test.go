package proxy

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/instancemanager/remount"
)

// What the kernel says has a code; one that does not end holds nobody but its own volume.
func TestRemountReadOnlyVolume(t *testing.T) {
	hung := make(chan struct{})
	s := &service{remount: func(volume string) error {
		switch volume {
		case "hangs":
			<-hung
			return nil
		case "unmounted":
			return fmt.Errorf("volume %s is %w", volume, remount.ErrNotMounted)
		case "broken":
			return remount.ErrRefused
		case "a/b":
			return remount.ErrInvalid
		case "odd":
			return fmt.Errorf("odd")
		}
		return nil
	}}
	call := func(ctx context.Context, volume string) codes.Code {
		_, err := s.RemountReadOnlyVolume(ctx, &imrpc.RemountVolumeRequest{VolumeName: volume})
		return status.Code(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if c := call(short, "hangs"); c != codes.DeadlineExceeded {
		t.Error(c)
	}
	for volume, want := range map[string]codes.Code{"hangs": codes.Aborted, "unmounted": codes.NotFound,
		"broken": codes.FailedPrecondition,
		"a/b":    codes.InvalidArgument, "odd": codes.Internal, "fine": codes.OK} {
		if c := call(t.Context(), volume); c != want {
			t.Errorf("%s: %s, want %s", volume, c, want)
		}
	}
	for range 1000 { // one after the other is not at once
		if c := call(t.Context(), "fine"); c != codes.OK {
			t.Fatal(c)
		}
	}
	close(hung)
	for deadline := time.Now().Add(30 * time.Second); call(t.Context(), "hangs") != codes.OK; {
		if time.Now().After(deadline) {
			t.Fatal("it is still held")
		}
	}
}
