package verification

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

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

type edit func(*Subject)

// atRest is an object that was looked at and of which nobody asks anything.
func atRest(e edit) *Subject {
	var ver *v1beta2.BackupVerification
	o := &Subject{Kind: "Kind", Name: "v-1", UID: "u", Known: true, Status: &ver,
		Backups: "of volume v on backup target default", Mend: "back it up again"}
	if e != nil {
		e(o)
	}
	return o
}

// asked wants a verification since t0.
func asked(o *Subject) { o.RequestedAt = metav1.NewTime(t0) }

// underWay is the one that was asked for, behind a block.
func underWay(o *Subject) {
	asked(o)
	*o.Status = &v1beta2.BackupVerification{RequestedAt: metav1.NewTime(t0), StartedAt: metav1.NewTime(t0), Next: "ab"}
}

// over is the one that was asked for, ago before t0.
func over(ago time.Duration) edit {
	return func(o *Subject) {
		underWay(o)
		(*o.Status).Next, (*o.Status).EndedAt = "", metav1.NewTime(t0.Add(-ago))
	}
}

// part is the end of a part of the verification that is under way.
func part(ago time.Duration, err error) store.Errand[*engineclient.Verified] {
	return store.Errand[*engineclient.Verified]{Order: partName(atRest(underWay)), Over: true, Began: t0.Add(-ago),
		Ended: t0.Add(-ago), Err: err, Result: &engineclient.Verified{Next: "cd", Done: 3, Total: 4, Blocks: 2}}
}

// TestVerify is the table of docs/design/backups.md.
func TestVerify(t *testing.T) {
	const m, h = time.Minute, time.Hour
	lost := fmt.Errorf("no volume: %w", engineclient.ErrNotFound)
	for _, c := range []struct {
		name  string
		edit  edit
		part  store.Errand[*engineclient.Verified]
		every time.Duration
		next  bool // the next part begins
		after time.Duration
		// state of the verification afterwards: none, begun, behind a block, over.
		state string
	}{
		{name: "nobody asks", state: "none"},
		{name: "asked for", edit: asked, state: "begun"},
		{name: "asked for again", edit: func(o *Subject) {
			over(m)(o)
			o.RequestedAt = metav1.NewTime(t0.Add(m))
		}, state: "begun"},
		{name: "answered", edit: over(m), state: "over"},
		{name: "under way", edit: underWay, next: true, state: "behind ab"},
		{name: "under way, in a part", edit: underWay, part: store.Errand[*engineclient.Verified]{
			Order: partName(atRest(underWay))}, after: 5 * time.Second, state: "behind ab"},
		{name: "under way, while another volume is verified", edit: underWay,
			part: store.Errand[*engineclient.Verified]{Order: "Kind w-1 u 2026 "}, after: 5 * time.Second, state: "behind ab"},
		{name: "under way, and another volume's part is over", edit: underWay,
			part: store.Errand[*engineclient.Verified]{Order: "Kind w-1 u 2026 ", Over: true}, next: true, state: "behind ab"},
		{name: "a part is over", edit: underWay, part: part(0, nil), state: "behind cd"},
		{name: "a part that was taken", edit: func(o *Subject) {
			underWay(o)
			(*o.Status).Next = "cd"
		}, part: part(0, nil), next: true, state: "behind cd"},
		{name: "a part has failed", edit: underWay, part: part(0, errors.New("no")), after: m, state: "behind ab"},
		{name: "a part has failed long ago", edit: underWay, part: part(m, errors.New("no")), next: true,
			state: "behind ab"},
		{name: "the store has nothing of the volume", edit: underWay, part: part(0, lost), state: "over"},
		{name: "due, for the first time", every: h, state: "begun"},
		{name: "due, and the store was not looked at", every: h, edit: func(o *Subject) { o.Known = false }, state: "none"},
		{name: "not due yet", every: h, edit: over(m), after: 59 * m, state: "over"},
		{name: "due", every: h, edit: over(h), state: "begun"},
		{name: "due, and under way", every: h, edit: underWay, next: true, state: "behind ab"},
	} {
		o := atRest(c.edit)
		got := Decide(t0, o, Seen{Part: c.part, Every: c.every})
		state, ver := "none", *o.Status
		switch {
		case ver == nil:
		case ver.Ended():
			state = "over"
		case ver.Next != "":
			state = "behind " + ver.Next
		case ver.StartedAt.Time.Equal(t0) && ver.RequestedAt.Equal(&o.RequestedAt):
			state = "begun"
		}
		if got.Part != c.next || got.After != c.after || state != c.state {
			t.Errorf("%s: %+v, %s; want a part %v, after %v, %s", c.name, got, state, c.next, c.after, c.state)
		}
	}
}

// TestPartsAddUp: parts are one result, whose verdict is told at the end.
func TestPartsAddUp(t *testing.T) {
	o := atRest(func(o *Subject) {
		asked(o)
		*o.Status = &v1beta2.BackupVerification{StartedAt: metav1.NewTime(t0)}
	})
	many := make([]engineclient.StoreFault, 90)
	events := take(t0, o, &engineclient.Verified{Backups: []string{"b1", "b2"}, Hurt: map[string]int{"b2": 90},
		Blocks: 100, ReadBytes: 7, Done: 100, Total: 200, Next: "ab", Faults: many, FaultCount: 200})
	ver := *o.Status
	if len(events) > 0 || ver.Progress != 50 || ver.Next != "ab" || ver.Ended() {
		t.Errorf("%+v, %+v", events, ver)
	}
	ver.Error = "the store was away"
	events = take(t0, o, &engineclient.Verified{Backups: []string{"b1", "b2", "b3"},
		Hurt: map[string]int{"b2": 1, "b3": 2}, Blocks: 50, ReadBytes: 3, Done: 200, Total: 200, Faults: many,
		FaultCount: 90})
	if fmt.Sprint(ver.Backups) != "[{b1 0} {b2 91} {b3 2}]" || ver.FaultCount != 290 || len(ver.Faults) != 100 ||
		ver.Blocks != 150 || ver.ReadBytes != 10 || ver.Progress != 100 || !ver.Ended() || ver.Error != "" {
		t.Errorf("%+v", ver)
	}
	if len(events) != 1 || !events[0].Warning || events[0].Reason != "Damaged" ||
		!strings.Contains(events[0].Message, "290 objects of volume v on backup target default") ||
		!strings.Contains(events[0].Message, "hurt: 2 b2, b3; back it up again") {
		t.Errorf("%+v", events)
	}
	ver.FaultCount = 0
	if e := verdict(o); e.Warning || e.Reason != "Verified" || !strings.Contains(e.Message, "150 blocks were read") {
		t.Errorf("%+v", e)
	}
}

// TestPartWakesItsObject: parts are by target, one at a time whichever kind they are of, and wake
// the object that they are of.
func TestPartWakesItsObject(t *testing.T) {
	p, woken := NewParts(), make(chan string, 2)
	for _, kind := range []string{"Kind", "Other"} {
		p.OnEnd(kind, func(_ context.Context, name string) { woken <- kind + " " + name })
	}
	other, hold := atRest(underWay), make(chan struct{})
	other.Kind = "Other"
	begin := func(o *Subject) {
		o.URL = func(string) (string, error) {
			<-hold
			return "", errors.New("no")
		}
		p.Begin(o, nil, &v1beta2.BackupTarget{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, setting.Values{})
	}
	begin(other)
	begin(atRest(underWay))
	close(hold)
	if got := <-woken; got != "Other v-1" {
		t.Errorf("%q is woken, by a part that began second", got)
	}
	begin(atRest(underWay))
	if got := <-woken; got != "Kind v-1" {
		t.Errorf("%q is woken", got)
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
		o := atRest(underWay)
		o.BandwidthLimit = c.order
		if got := nextPart(o, settings); got.BandwidthMiB != want || got.After != "ab" || got.For == 0 {
			t.Errorf("order %d, setting %s: %+v", c.order, c.setting, got)
		}
	}
}

// Two verifications of one second are two: the second one is not told what the first has found.
func TestVerificationsOfOneSecond(t *testing.T) {
	begun := metav1.NewTime(time.Date(2026, 11, 30, 17, 25, 39, 0, time.UTC))
	order := func(asked metav1.Time) string {
		return partName(atRest(func(o *Subject) {
			*o.Status = &v1beta2.BackupVerification{StartedAt: begun, RequestedAt: asked}
		}))
	}
	first, second := order(begun), order(metav1.NewTime(begun.Add(time.Second)))
	if first == second {
		t.Errorf("both have order %q", first)
	}
	if kind, name := partOf(second); kind != "Kind" || name != "v-1" {
		t.Errorf("order %q is of %s %q", second, kind, name)
	}
}
