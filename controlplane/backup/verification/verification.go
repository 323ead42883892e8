// Package verification has verified what backup targets hold: all backups of a volume, for the
// controller of backup volumes, and the backup of a backing image, for that of those.
//
// It is done in parts: how far that is stands in the status of the object after each, so that the
// next leader goes on where one has ended. Of each target one part is under way at a time,
// whichever object it is of, so that its bandwidth is that of one.
package verification

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/setting"
)

const (
	// partTakes is how long a part of a verification takes at least, if there is as much: its result
	// is written to the object, and what a leader that ends loses is one part.
	partTakes = 20 * time.Second
	// turnAfter is how long one waits for its turn while another one of the target is verified.
	turnAfter = 5 * time.Second
	// againAfter is the pause after a part that has failed.
	againAfter = time.Minute
	// mostFaults bounds those that the object lists.
	mostFaults = 100
)

// Subject is the object that stands for what is verified.
type Subject struct {
	// Kind, Name and UID are those of the object.
	Kind, Name, UID string
	// URL is where it lies, given the URL of its target.
	URL func(targetURL string) (string, error)
	// Backups says in events which backups these are, and Mend how they are written again.
	Backups, Mend string
	// RequestedAt and BandwidthLimit are those of its spec.
	RequestedAt    metav1.Time
	BandwidthLimit int64
	// Known: the store was looked at, and has something.
	Known bool
	// Status is where the object has the latest verification.
	Status **v1beta2.BackupVerification
}

// Seen is what a decision looks at besides.
type Seen struct {
	// Part is the latest part of the target, of this object or another one.
	Part store.Errand[*engineclient.Verified]
	// Every is the pause between verifications that nobody asks for; 0: there are none.
	Every time.Duration
}

// Parts are the parts of verifications, one at a time for each target, by its name. The controller
// of backup volumes adds them to its manager, which ends them.
type Parts struct {
	*store.Errands[*engineclient.Verified]

	mu    sync.Mutex
	wakes map[string]func(ctx context.Context, name string) // by kind
}

// NewParts returns none.
func NewParts() *Parts {
	p := &Parts{Errands: store.NewErrands[*engineclient.Verified](), wakes: map[string]func(context.Context, string){}}
	p.Errands.Wake = func(ctx context.Context, target string) {
		kind, name := partOf(p.Of(target).Order)
		p.mu.Lock()
		wake := p.wakes[kind]
		p.mu.Unlock()
		if wake != nil {
			wake(ctx, name)
		}
	}
	return p
}

// OnEnd has objects of a kind woken when a part of theirs is over.
func (p *Parts) OnEnd(kind string, wake func(ctx context.Context, name string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wakes[kind] = wake
}

// Seen returns what Decide looks at.
func (p *Parts) Seen(target string, settings setting.Values) Seen {
	return Seen{Part: p.Of(target), Every: time.Duration(settings.Int(setting.BackupVerifyInterval)) * time.Hour}
}

// Begin begins the next part of the verification that the object shows.
func (p *Parts) Begin(o *Subject, access *store.Access, t *v1beta2.BackupTarget, settings setting.Values) {
	part, at := nextPart(o, settings), t.Spec.BackupTargetURL
	p.Errands.Begin(t.Name, partName(o), func(ctx context.Context) (*engineclient.Verified, error) {
		url, err := o.URL(at)
		if err != nil {
			return nil, err
		}
		st, err := access.Open(ctx, t)
		if err != nil {
			return nil, err
		}
		return st.BackupVerify(ctx, url, part, st.Credentials)
	})
}

// partName is the order of the next part of an object's verification: of none other that begins in
// the same second, whose requests are a second apart.
func partName(o *Subject) string {
	ver := *o.Status
	return strings.Join([]string{o.Kind, o.Name, o.UID, ver.StartedAt.UTC().Format(time.RFC3339),
		ver.RequestedAt.UTC().Format(time.RFC3339), ver.Next}, " ")
}

// partOf is the object of such an order.
func partOf(order string) (kind, name string) {
	words := strings.SplitN(order, " ", 3)
	if len(words) < 3 {
		return "", ""
	}
	return words[0], words[1]
}

// nextPart is what is to be read next. The bandwidth is that of who has asked, else the setting's.
func nextPart(o *Subject, settings setting.Values) engineclient.VerifyPart {
	return engineclient.VerifyPart{After: (*o.Status).Next, For: partTakes,
		BandwidthMiB: cmp.Or(o.BandwidthLimit, int64(settings.Int(setting.BackupVerifyBandwidthLimit)))}
}

// Next says what a verification does.
type Next struct {
	// Part: the next part begins now. After is when to decide again; 0: nobody knows.
	Part  bool
	After time.Duration
	// Events tell what was found.
	Events []loop.Event
}

// Decide has an object verified where that is asked for or due.
//
// Crash window: a part whose result is lost is read again.
func Decide(now time.Time, o *Subject, s Seen) Next {
	begin, left := due(now, o, s.Every)
	ver, e := *o.Status, s.Part
	switch {
	case begin:
		*o.Status = &v1beta2.BackupVerification{RequestedAt: o.RequestedAt, StartedAt: second(now)}
		return Next{}
	case ver == nil || ver.Ended():
		return Next{After: left}
	case !e.Is(partName(o)):
	case e.Err == nil:
		return Next{Events: take(now, o, e.Result)}
	case errors.Is(e.Err, engineclient.ErrNotFound):
		ver.Error, ver.EndedAt = store.Refusal(e.Err), second(now)
		return Next{}
	case now.Before(e.Ended.Add(againAfter)):
		ver.Error = store.Refusal(e.Err)
		return Next{After: e.Ended.Add(againAfter).Sub(now)}
	}
	if e.Runs() {
		return Next{After: turnAfter}
	}
	return Next{Part: true}
}

// due says whether a verification is to begin now, or after left; 0: nobody knows when.
func due(now time.Time, o *Subject, every time.Duration) (begin bool, left time.Duration) {
	ver := *o.Status
	switch {
	case !o.RequestedAt.IsZero() && (ver == nil || !ver.RequestedAt.Equal(&o.RequestedAt)):
		return true, 0
	case every == 0 || ver != nil && !ver.Ended() || !o.Known:
		return false, 0
	case ver == nil:
		return true, 0
	}
	left = ver.EndedAt.Add(every).Sub(now)
	return left <= 0, max(left, 0)
}

// second is the time as objects keep it.
func second(now time.Time) metav1.Time { return metav1.NewTime(now.Truncate(time.Second)) }

// take adds what a part has found to the status.
func take(now time.Time, o *Subject, found *engineclient.Verified) []loop.Event {
	ver := *o.Status
	if ver.Next == "" { // the first part
		for _, name := range found.Backups {
			ver.Backups = append(ver.Backups, v1beta2.VerifiedBackup{Name: name})
		}
	}
	for name, n := range found.Hurt {
		i := slices.IndexFunc(ver.Backups, func(b v1beta2.VerifiedBackup) bool { return b.Name == name })
		if i < 0 {
			i = len(ver.Backups)
			ver.Backups = append(ver.Backups, v1beta2.VerifiedBackup{Name: name})
		}
		ver.Backups[i].Faults += int64(n)
	}
	slices.SortFunc(ver.Backups, func(a, b v1beta2.VerifiedBackup) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range found.Faults[:min(len(found.Faults), mostFaults-len(ver.Faults))] {
		ver.Faults = append(ver.Faults, v1beta2.BackupFault{Kind: f.Kind, Object: f.Object, Message: f.Error,
			Backups: f.Backups, BackupCount: int64(f.BackupCount)})
	}
	ver.FaultCount += int64(found.FaultCount)
	ver.Blocks, ver.ReadBytes = ver.Blocks+int64(found.Blocks), ver.ReadBytes+found.ReadBytes
	ver.Next, ver.Error, ver.Progress = found.Next, "", 100
	if found.Next != "" {
		ver.Progress = min(99, 100*found.Done/max(found.Total, 1))
		return nil
	}
	ver.EndedAt = second(now)
	return []loop.Event{verdict(o)}
}

// verdict is the event at the end.
func verdict(o *Subject) loop.Event {
	ver := *o.Status
	if ver.FaultCount == 0 {
		return loop.Event{Reason: naming.EventVerified,
			Message: fmt.Sprintf("All %d backups %s are sound: %d blocks were read", len(ver.Backups), o.Backups, ver.Blocks)}
	}
	var hurt []string
	for _, b := range ver.Backups {
		if b.Faults > 0 {
			hurt = append(hurt, b.Name)
		}
	}
	const shown = 10
	names := strings.Join(hurt[:min(len(hurt), shown)], ", ")
	if len(hurt) > shown {
		names += ", …"
	}
	return loop.Event{Warning: true, Reason: naming.EventDamaged, Message: fmt.Sprintf("%d objects %s are damaged or "+
		"missing; backups that are hurt: %d %s; %s", ver.FaultCount, o.Backups, len(hurt), names, o.Mend)}
}
