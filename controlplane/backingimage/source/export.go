package source

import (
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/volume/snapshot"
)

// sendAgainAfter is the pause after an order to send that was not followed.
const sendAgainAfter = 10 * time.Second

// parameterFileType is what the process of an export is told of export-type.
const parameterFileType = "file-type"

// exported is what decide looks at for a data source that exports a volume.
type exported struct {
	// Volume, Snapshot, Attachment and Engine (the active one) are nil if there is none.
	Volume     *v1beta2.Volume
	Snapshot   *v1beta2.Snapshot
	Attachment *v1beta2.VolumeAttachment
	Engine     *v1beta2.Engine
	// Reachable says whether orders reach the engine. Lacks says why no engine could serve the volume
	// now; empty if one could.
	Reachable bool
	Lacks     string
	// At is where a volume that nobody uses would be attached.
	At snapshot.Place
}

// attempt is an order to an engine. Refusal is its error; for good: another order would be refused
// too.
type attempt struct {
	At      time.Time
	Refusal string
	ForGood bool
}

func attemptOf(now time.Time, err error) attempt {
	a := attempt{At: now}
	if err != nil {
		a.Refusal = err.Error()
		a.ForGood = errors.Is(err, engineclient.ErrInvalid) || errors.Is(err, engineclient.ErrNotFound)
	}
	return a
}

// exports says whether a data source makes its file of a volume.
func exports(d *v1beta2.BackingImageDataSource) bool {
	return d.Spec.SourceType == v1beta2.BackingImageSourceTypeExportFromVolume
}

// exportedVolume is the volume that a data source exports; empty if it exports none.
func exportedVolume(d *v1beta2.BackingImageDataSource) string {
	if !exports(d) {
		return ""
	}
	return d.Spec.Parameters[v1beta2.BackingImageParameterVolumeName]
}

// ownSnapshot says whether the snapshot is taken for the export.
func ownSnapshot(d *v1beta2.BackingImageDataSource) bool {
	return d.Spec.Parameters[v1beta2.BackingImageParameterSnapshotName] == ""
}

// snapshotName is that of the snapshot that is exported. One that is taken for it has the same name
// at each attempt, and another one for objects of the same names.
func snapshotName(d *v1beta2.BackingImageDataSource, volume *v1beta2.Volume) string {
	if !ownSnapshot(d) {
		return d.Spec.Parameters[v1beta2.BackingImageParameterSnapshotName]
	}
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(string(volume.UID)+"/"+string(d.UID))).String()
}

// parameters are what the Pod is told.
func (p *pass) parameters() map[string]string {
	out := maps.Clone(p.d.Spec.Parameters)
	if x := p.s.Export; exports(p.d) && x.Volume != nil {
		out[v1beta2.BackingImageParameterSnapshotName] = snapshotName(p.d, x.Volume)
		out[parameterFileType] = out[v1beta2.BackingImageParameterExportType]
	}
	if b := p.s.Clone.Image; clones(p.d) && b != nil {
		out[parameterImageUUID] = b.Status.UUID
	}
	// The key comes with the order.
	delete(out, v1beta2.BackingImageParameterSecret)
	delete(out, v1beta2.BackingImageParameterSecretNamespace)
	return out
}

func (p *pass) ticket(wanted bool) loop.Decision {
	x := p.s.Export
	if x.Volume == nil {
		return loop.Decision{}
	}
	return snapshot.Ticket(x.Attachment, x.Volume, v1beta2.AttacherTypeBackingImageData, p.d.Name, x.At, wanted)
}

// attached says whether the volume is attached for this export too.
func (p *pass) attached() bool {
	id := naming.AttachmentTicketID(string(v1beta2.AttacherTypeBackingImageData), p.d.Name)
	a := p.s.Export.Attachment
	return a != nil && a.Status.AttachmentTicketStatuses[id].Satisfied
}

// release drops what an export holds: its snapshot, and then its ticket.
func (p *pass) release() loop.Decision {
	x := p.s.Export
	if !exports(p.d) {
		return loop.Decision{}
	}
	if s := x.Snapshot; s != nil && ownSnapshot(p.d) && s.DeletionTimestamp == nil {
		return loop.Decision{Do: loop.Delete{Object: s}}
	}
	return p.ticket(false)
}

// impossible says why the volume cannot be exported; empty if it may be.
func (p *pass) impossible() string {
	x, name := p.s.Export, p.d.Spec.Parameters[v1beta2.BackingImageParameterVolumeName]
	s := x.Snapshot
	switch {
	case x.Volume == nil || x.Volume.DeletionTimestamp != nil:
		return "volume " + name + " does not exist any more"
	case x.Volume.Status.Robustness == v1beta2.VolumeRobustnessFaulted:
		return "volume " + name + " is faulted: salvage it"
	case ownSnapshot(p.d) && (s == nil || !s.Status.MarkRemoved), s != nil && s.DeletionTimestamp == nil &&
		!s.Status.MarkRemoved && s.Spec.Volume == name:
		return ""
	}
	return "snapshot " + snapshotName(p.d, x.Volume) + " of volume " + name + " does not exist any more"
}

// awaits tells what is waited for before something can be sent.
func (p *pass) awaits(why string) (loop.Decision, bool) {
	if st := &p.d.Status; st.CurrentState != v1beta2.BackingImageStateFailed {
		st.Message = why
	}
	return loop.Decision{}, false
}

// hold has what is to be sent ready: the volume is attached and its snapshot taken, the image that
// is cloned is on a disk, or the store of the backup is available.
func (p *pass) hold() (d loop.Decision, ready bool) {
	switch {
	case clones(p.d):
		return p.holdImage()
	case restores(p.d):
		return p.holdTarget()
	}
	x := p.s.Export
	if why := p.impossible(); why != "" {
		p.failed(why)
		return p.release(), false
	}
	switch {
	case x.Volume.Spec.MigrationNodeID != "":
		return p.awaits("waiting for the migration of volume " + x.Volume.Name)
	case !x.Reachable && x.Lacks != "":
		d, _ := p.awaits("waiting for the engine of volume " + x.Volume.Name + " to run: " + x.Lacks)
		if t := p.ticket(false); t.Do != nil {
			d = t
		}
		return d, false
	}
	if t := p.ticket(true); t.Do != nil {
		return t, false
	}
	switch {
	case !p.attached() || !x.Reachable:
		return p.awaits("waiting for volume " + x.Volume.Name + " to be attached for it")
	case x.Snapshot == nil:
		return loop.Decision{Do: loop.Create{Object: p.snapshotFor()}, FailureReason: naming.EventFailed}, false
	case !x.Snapshot.Status.ReadyToUse:
		why := "waiting for snapshot " + x.Snapshot.Name + " to be taken: " + x.Snapshot.Status.Error
		return p.awaits(strings.TrimSuffix(why, ": "))
	}
	return loop.Decision{}, true
}

func (p *pass) snapshotFor() *v1beta2.Snapshot {
	v := p.s.Export.Volume
	mine := map[string]string{naming.LabelForExportingBackingImage: p.d.Name}
	return &v1beta2.Snapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.d.Namespace, Name: snapshotName(p.d, v), Labels: mine},
		Spec:       v1beta2.SnapshotSpec{Volume: v.Name, CreateSnapshot: true, Labels: maps.Clone(mine)},
	}
}

// send has the engine send the snapshot, or a manager the image, to the Pod, which waits for it.
//
// Crash window: the sender may have begun and the answer be lost; then the Pod receives already,
// and refuses a second sender.
func (p *pass) send() loop.Decision {
	t := p.s.Tried
	if t.ForGood {
		p.failed(t.Refusal)
		return p.release()
	}
	d, ready := p.hold()
	switch {
	case !ready:
		if d.Do == nil {
			d.After = p.askAfter()
		}
		return d
	case p.now.Before(t.At.Add(sendAgainAfter)):
		if t.Refusal != "" {
			p.d.Status.Message = t.Refusal
		}
		return loop.Decision{After: p.askAfter()}
	}
	what := "send backing image " + clonedImage(p.d)
	switch {
	case restores(p.d):
		what = "restore a backup from backup target " + restoreTarget(p.d)
	case exports(p.d):
		what = "send snapshot " + p.s.Export.Snapshot.Name + " of volume " + p.s.Export.Volume.Name
	}
	return loop.Decision{Do: loop.Call{What: what, Order: sendOrder{}}}
}
