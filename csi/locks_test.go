package csi

import (
	"testing"

	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
)

func TestLocks(t *testing.T) {
	var l locks
	release, err := l.take("a", "NodeStageVolume")
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.take("a", "NodePublishVolume")
	csitest.Wants(t, err, codes.Aborted)
	other, err := l.take("b", "NodeStageVolume")
	if err != nil {
		t.Fatal(err)
	}
	other()
	release()
	if again, err := l.take("a", "NodePublishVolume"); err != nil {
		t.Error(err)
	} else {
		again()
	}
}
