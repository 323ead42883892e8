package backupvolume

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/setting"
)

// atRest is a backup volume that was looked at and that nobody asks anything of.
func atRest(edit func(*v1beta2.BackupVolume)) *v1beta2.BackupVolume {
	v := volume(edit)
	v.Status.LastSyncedAt = metav1.NewTime(t0)
	return v
}

// asked wants a verification since t0.
func asked(v *v1beta2.BackupVolume) { v.Spec.VerifyRequestedAt = metav1.NewTime(t0) }

// underWay is the one that was asked for, behind a block.
func underWay(v *v1beta2.BackupVolume) {
	asked(v)
	v.Status.Verification = &v1beta2.BackupVerification{RequestedAt: metav1.NewTime(t0), StartedAt: metav1.NewTime(t0),
		Next: "ab"}
}

// over is the one that was asked for, ago before t0.
func over(ago time.Duration) func(*v1beta2.BackupVolume) {
	return func(v *v1beta2.BackupVolume) {
		underWay(v)
		v.Status.Verification.Next, v.Status.Verification.EndedAt = "", metav1.NewTime(t0.Add(-ago))
	}
}

// part is the end of a part of the verification that is under way.
func part(ago time.Duration, err error) store.Errand[*engineclient.Verified] {
	return store.Errand[*engineclient.Verified]{Order: partName(volume(underWay)), Over: true, Began: t0.Add(-ago),
		Ended: t0.Add(-ago), Err: err, Result: &engineclient.Verified{Next: "cd", Done: 3, Total: 4, Blocks: 2}}
}

// TestVerify is the table of docs/design/backups.md.
func TestVerify(t *testing.T) {
	const verify, m, h = "verify backup volume v-1", time.Minute, time.Hour
	lost := fmt.Errorf("no volume: %w", engineclient.ErrNotFound)
	for _, c := range []struct {
		name  string
		edit  func(*v1beta2.BackupVolume)
		part  store.Errand[*engineclient.Verified]
		every time.Duration
		off   bool // the target
		want  string
		// state of the verification afterwards: none, begun, behind a block, over.
		state string
	}{
		{name: "nobody asks", state: "none"},
		{name: "asked for", edit: asked, state: "begun"},
		{name: "asked for, and the target is off", edit: asked, off: true, state: "none"},
		{name: "asked for again", edit: func(v *v1beta2.BackupVolume) {
			over(m)(v)
			v.Spec.VerifyRequestedAt = metav1.NewTime(t0.Add(m))
		}, state: "begun"},
		{name: "answered", edit: over(m), state: "over"},
		{name: "under way", edit: underWay, want: verify, state: "behind ab"},
		{name: "under way, in a part", edit: underWay, part: store.Errand[*engineclient.Verified]{
			Order: partName(volume(underWay))}, want: " after 5s", state: "behind ab"},
		{name: "under way, while another volume is verified", edit: underWay,
			part: store.Errand[*engineclient.Verified]{Order: "w-1 u 2026 "}, want: " after 5s", state: "behind ab"},
		{name: "under way, and another volume's part is over", edit: underWay,
			part: store.Errand[*engineclient.Verified]{Order: "w-1 u 2026 ", Over: true}, want: verify, state: "behind ab"},
		{name: "a part is over", edit: underWay, part: part(0, nil), state: "behind cd"},
		{name: "a part that was taken", edit: func(v *v1beta2.BackupVolume) {
			underWay(v)
			v.Status.Verification.Next = "cd"
		}, part: part(0, nil), want: verify, state: "behind cd"},
		{name: "a part has failed", edit: underWay, part: part(0, errors.New("no")), want: " after 1m0s", state: "behind ab"},
		{name: "a part has failed long ago", edit: underWay, part: part(m, errors.New("no")), want: verify,
			state: "behind ab"},
		{name: "the store has nothing of the volume", edit: underWay, part: part(0, lost), state: "over"},
		{name: "due, for the first time", every: h, state: "begun"},
		{name: "not due yet", every: h, edit: over(m), want: " after 59m0s", state: "over"},
		{name: "due", every: h, edit: over(h), state: "begun"},
		{name: "due, and under way", every: h, edit: underWay, want: verify, state: "behind ab"},
	} {
		v := atRest(c.edit)
		s := seen{Part: c.part, Every: c.every,
			Target: &v1beta2.BackupTarget{Spec: v1beta2.BackupTargetSpec{BackupTargetURL: "s3://b@r/"}}}
		if c.off {
			s.Target.Spec.BackupTargetURL = ""
		}
		got := show(decide(t0, v, s))
		state, ver := "none", v.Status.Verification
		switch {
		case ver == nil:
		case ver.Ended():
			state = "over"
		case ver.Next != "":
			state = "behind " + ver.Next
		case ver.StartedAt.Time.Equal(t0) && ver.RequestedAt.Equal(&v.Spec.VerifyRequestedAt):
			state = "begun"
		}
		if got != c.want || state != c.state {
			t.Errorf("%s: %q, %s; want %q, %s", c.name, got, state, c.want, c.state)
		}
	}
}

// TestPartsAddUp: parts are one result, whose verdict is told at the end.
func TestPartsAddUp(t *testing.T) {
	v := volume(func(v *v1beta2.BackupVolume) {
		asked(v)
		v.Status.Verification = &v1beta2.BackupVerification{StartedAt: metav1.NewTime(t0)}
	})
	p := &pass{now: t0, v: v}
	many := make([]engineclient.StoreFault, 90)
	d := p.takePart(&engineclient.Verified{Backups: []string{"b1", "b2"}, Hurt: map[string]int{"b2": 90}, Blocks: 100,
		ReadBytes: 7, Done: 100, Total: 200, Next: "ab", Faults: many, FaultCount: 200})
	ver := v.Status.Verification
	if len(d.Events) > 0 || ver.Progress != 50 || ver.Next != "ab" || ver.Ended() {
		t.Errorf("%+v, %+v", d, ver)
	}
	ver.Error = "the store was away"
	d = p.takePart(&engineclient.Verified{Backups: []string{"b1", "b2", "b3"}, Hurt: map[string]int{"b2": 1, "b3": 2},
		Blocks: 50, ReadBytes: 3, Done: 200, Total: 200, Faults: many, FaultCount: 90})
	if fmt.Sprint(ver.Backups) != "[{b1 0} {b2 91} {b3 2}]" || ver.FaultCount != 290 || len(ver.Faults) != 100 ||
		ver.Blocks != 150 || ver.ReadBytes != 10 || ver.Progress != 100 || !ver.Ended() || ver.Error != "" {
		t.Errorf("%+v", ver)
	}
	if len(d.Events) != 1 || !d.Events[0].Warning || d.Events[0].Reason != "Damaged" ||
		!strings.Contains(d.Events[0].Message, "290 objects of volume v on backup target default") ||
		!strings.Contains(d.Events[0].Message, "hurt: 2 b2, b3;") {
		t.Errorf("%+v", d.Events)
	}
	ver.FaultCount = 0
	if e := verdict(v); e.Warning || e.Reason != "Verified" || !strings.Contains(e.Message, "150 blocks were read") {
		t.Errorf("%+v", e)
	}
}

// TestPartWakesItsVolume: the errands of parts are by target, and wake the volume that they are of.
func TestPartWakesItsVolume(t *testing.T) {
	r, woken := New(Config{}), ""
	r.errands.Wake = func(_ context.Context, name string) { woken = name }
	ended := make(chan struct{})
	wake := r.parts.Wake
	r.parts.Wake = func(ctx context.Context, name string) {
		wake(ctx, name)
		close(ended)
	}
	r.parts.Begin("default", partName(volume(underWay)), func(context.Context) (*engineclient.Verified, error) {
		return nil, errors.New("no")
	})
	if <-ended; woken != "v-1" {
		t.Errorf("%q is woken", woken)
	}
}

// TestBandwidth: a part reads as fast as the setting says, unless who has asked says otherwise.
func TestBandwidth(t *testing.T) {
	for want, c := range map[int64]struct {
		order   int64
		setting string
	}{20: {}, 7: {7, ""}, 3: {0, "3"}, 8: {8, "3"}} {
		settings := setting.Values{}
		if c.setting != "" {
			settings[setting.BackupVerifyBandwidthLimit] = c.setting
		}
		v := volume(underWay)
		v.Spec.VerifyBandwidthLimit = c.order
		if got := nextPart(v, settings); got.BandwidthMiB != want || got.After != "ab" || got.For == 0 {
			t.Errorf("order %d, setting %s: %+v", c.order, c.setting, got)
		}
	}
}

// Two verifications of one second are two: the second one is not told what the first has found.
func TestVerificationsOfOneSecond(t *testing.T) {
	begun := metav1.NewTime(time.Date(2026, 11, 30, 17, 25, 39, 0, time.UTC))
	order := func(asked metav1.Time) string {
		v := &v1beta2.BackupVolume{}
		v.Name, v.UID = "v", "u"
		v.Status.Verification = &v1beta2.BackupVerification{StartedAt: begun, RequestedAt: asked}
		return partName(v)
	}
	if first, second := order(begun), order(metav1.NewTime(begun.Add(time.Second))); first == second {
		t.Errorf("both have order %q", first)
	} else if partOf(second) != "v" {
		t.Errorf("order %q is of volume %q", second, partOf(second))
	}
}
