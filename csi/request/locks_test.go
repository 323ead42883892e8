package request

import (
	"testing"

	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
)

func TestLocks(t *testing.T) {
	var l Locks
	release, err := l.Take("a", "NodeStageVolume")
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.Take("a", "NodePublishVolume")
	csitest.Wants(t, err, codes.Aborted)
	other, err := l.Take("b", "NodeStageVolume")
	if err != nil {
		t.Fatal(err)
	}
	other()
	release()
	if again, err := l.Take("a", "NodePublishVolume"); err != nil {
		t.Error(err)
	} else {
		again()
	}
}
