package backupimage

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/process/engineclient"
)

// whole is a backup that was completed a minute ago, of the image that is there.
func whole(c *scene) {
	state(v1beta2.BackupStateCompleted)(c)
	ordered(c)
	c.b.Status.BackupCreatedAt, c.b.Status.Checksum, c.s.Image.Status.Checksum = "2026-01-02T03:03:05Z", "0a", "0a"
	c.b.Status.LastSyncedAt = metav1.NewTime(t0.Add(-time.Minute))
}

// found is a verification that has ended a second ago with so many faults.
func found(faults int64) edit {
	return func(c *scene) {
		at := metav1.NewTime(t0.Add(-time.Second))
		c.b.Spec.VerifyRequestedAt = at
		c.b.Status.Verification = &v1beta2.BackupVerification{RequestedAt: at, StartedAt: at, EndedAt: at, FaultCount: faults}
	}
}

// TestVerify: a backup that is complete is verified when that is asked for or due, one that was
// found in the store too.
func TestVerify(t *testing.T) {
	asked := func(c *scene) { c.b.Spec.VerifyRequestedAt = metav1.NewTime(t0) }
	due := func(c *scene) { c.s.Verification.Every = time.Hour }
	read := func(c *scene) {
		mirrored(c)
		c.b.Status.LastSyncedAt = metav1.NewTime(t0)
	}
	for name, tt := range map[string]struct {
		edits  []edit
		begins bool
	}{
		"nobody asks":           {[]edit{whole}, false},
		"asked for":             {[]edit{whole, asked}, true},
		"asked for, in a store": {[]edit{whole, read, asked}, true},
		"due":                   {[]edit{whole, due}, true},
		"in progress":           {[]edit{state(v1beta2.BackupStateInProgress), ordered, asked, due}, false},
		"has failed":            {[]edit{state(v1beta2.BackupStateError), asked, due}, false},
		"no target":             {[]edit{whole, asked, func(c *scene) { c.s.Target = nil }}, false},
		"no URL":                {[]edit{whole, asked, func(c *scene) { c.s.Target.Spec.BackupTargetURL = "" }}, false},
	} {
		c := newScene(tt.edits...)
		decide(t0, c.b, c.s)
		if begins := c.b.Status.Verification != nil; begins != tt.begins {
			t.Errorf("%s: begins %v", name, begins)
		}
		if !tt.begins {
			continue
		}
		if got := show(decide(t0, c.b, c.s)); got != "verify backup golden-1a2b3c4d" {
			t.Errorf("%s: begun, and %q", name, got)
		}
	}
}

// TestMends: what is damaged is ordered again where the image is, once.
func TestMends(t *testing.T) {
	for name, tt := range map[string]struct {
		edits []edit
		mends bool
	}{
		"sound":               {[]edit{whole, found(0)}, false},
		"damaged":             {[]edit{whole, found(2)}, true},
		"and asked for again": {[]edit{whole, found(2), func(c *scene) { c.b.Spec.VerifyRequestedAt.Time = t0 }}, true},
		"and tried already":   {[]edit{whole, found(2), func(c *scene) { c.b.Status.LastSyncedAt.Time = t0 }}, false},
		"and not over": {[]edit{whole, found(2), func(c *scene) {
			c.b.Status.Verification.EndedAt = metav1.Time{}
		}}, false},
		"no image":              {[]edit{whole, found(2), func(c *scene) { c.s.Image = nil }}, false},
		"another image":         {[]edit{whole, found(2), func(c *scene) { c.s.Image.Status.Checksum = "0b" }}, false},
		"no copy":               {[]edit{whole, found(2), func(c *scene) { c.s.From = "" }}, false},
		"a target that is away": {[]edit{whole, found(2), func(c *scene) { c.s.Target.Status.Available = false }}, false},
		"a backup of the store's": {[]edit{whole, found(2), mirrored, func(c *scene) {
			c.b.Status.LastSyncedAt.Time = t0
		}}, false},
	} {
		c := newScene(tt.edits...)
		decide(t0, c.b, c.s)
		if mends := c.b.Status.State == v1beta2.BackupStatePending; mends != tt.mends {
			t.Errorf("%s: %s", name, c.b.Status.State)
		}
		if got := show(decide(t0, c.b, c.s)); tt.mends && got != "back up backing image golden" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestMendingEnds: a backup that was complete stays that if nothing can be written again, and is
// removed from the store when it is deleted meanwhile.
func TestMendingEnds(t *testing.T) {
	pending := state(v1beta2.BackupStatePending)
	bad := fmt.Errorf("x: %w", engineclient.ErrInvalid)
	c := newScene(whole, found(2), pending, errand(orderCreate, 0, bad, outcome{}))
	d := decide(t0, c.b, c.s)
	if st := c.b.Status; st.State != v1beta2.BackupStateCompleted || st.Progress != 100 || st.Error != "" ||
		!strings.Contains(fmt.Sprint(st.Messages), "was not written again") || len(d.Events) != 1 {
		t.Errorf("%+v, %+v", st, d.Events)
	}
	if decide(t0, c.b, c.s); c.b.Status.State != v1beta2.BackupStateCompleted {
		t.Errorf("it is tried again: %s", c.b.Status.State)
	}
	c = newScene(whole, found(2), pending, deleted, func(c *scene) { c.b.Status.ManagerAddress = "" })
	if got := show(decide(t0, c.b, c.s)); got != "remove backup golden-1a2b3c4d from the store" {
		t.Errorf("deleted: %q", got)
	}
	c = newScene(whole, found(2), state(v1beta2.BackupStateInProgress), errand(orderInspect, 0, nil,
		held("2026-01-02T03:03:05Z")))
	if decide(t0, c.b, c.s); c.b.Status.State != v1beta2.BackupStateCompleted || !c.b.Status.LastSyncedAt.Time.Equal(t0) {
		t.Errorf("%+v", c.b.Status)
	}
	c = newScene(whole, found(2), pending, errand(orderCreate, time.Second, errors.New("no"), outcome{}))
	if decide(t0, c.b, c.s); c.b.Status.State != v1beta2.BackupStatePending {
		t.Errorf("%+v", c.b.Status)
	}
}
