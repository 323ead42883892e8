package volume

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/findings"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

// decimal writes a number of bytes the way volumes carry it.
func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// replicaDirectory is the folder of a disk that holds its replicas.
const replicaDirectory = "replicas"

// volumeParts is a volume with the objects that a client sees as parts of it.
type volumeParts struct {
	volume     *lh.Volume
	engines    []lh.Engine
	replicas   []lh.Replica
	attachment *lh.VolumeAttachment
}

// partsIndex is the parts of all volumes, by volume name.
type partsIndex struct {
	engines     map[string][]lh.Engine
	replicas    map[string][]lh.Replica
	attachments map[string]*lh.VolumeAttachment
}

// readParts lists engines, replicas and attachments once, for any number of volumes.
func readParts(ctx context.Context, o *serve.Objects) (*partsIndex, error) {
	var engines lh.EngineList
	var replicas lh.ReplicaList
	var attachments lh.VolumeAttachmentList
	for _, part := range []struct {
		what string
		list client.ObjectList
	}{{"engines", &engines}, {"replicas", &replicas}, {"volume attachments", &attachments}} {
		if err := o.List(ctx, part.list); err != nil {
			return nil, fmt.Errorf("listing %s: %w", part.what, err)
		}
	}
	x := &partsIndex{map[string][]lh.Engine{}, map[string][]lh.Replica{}, map[string]*lh.VolumeAttachment{}}
	for _, e := range engines.Items {
		x.engines[e.Spec.VolumeName] = append(x.engines[e.Spec.VolumeName], e)
	}
	for _, r := range replicas.Items {
		x.replicas[r.Spec.VolumeName] = append(x.replicas[r.Spec.VolumeName], r)
	}
	for i := range attachments.Items {
		x.attachments[attachments.Items[i].Name] = &attachments.Items[i]
	}
	return x, nil
}

// of joins the parts of one volume, engines and replicas by name.
func (x *partsIndex) of(v *lh.Volume) volumeParts {
	p := volumeParts{volume: v, engines: x.engines[v.Name], replicas: x.replicas[v.Name],
		attachment: x.attachments[v.Name]}
	sort.Slice(p.engines, func(i, j int) bool { return p.engines[i].Name < p.engines[j].Name })
	sort.Slice(p.replicas, func(i, j int) bool { return p.replicas[i].Name < p.replicas[j].Name })
	return p
}

// volumeView converts a volume and its parts to what clients see.
func volumeView(q *serve.Request, p volumeParts) *resource.Volume {
	v, spec, status := p.volume, &p.volume.Spec, &p.volume.Status
	state, robustness := volumeState(v), string(status.Robustness)
	if robustness == "" {
		robustness = string(lh.VolumeRobustnessUnknown)
	}
	out := &resource.Volume{
		Resource:   q.Envelope(resource.TypeVolume, v.Name, resource.OfferedWhen(state, robustness)),
		VolumeSpec: shownFields(spec), DisableFrontend: status.FrontendDisabled, State: state, Robustness: robustness,
		Image: spec.Image, CurrentImage: status.CurrentImage, Created: v.CreationTimestamp.UTC().Format(serve.TimeText),
		LastBackup: status.LastBackup, LastBackupAt: status.LastBackupAt, LastAttachedBy: spec.LastAttachedBy,
		RestoreRequired: status.RestoreRequired, RestoreInitiated: status.RestoreInitiated,
		Conditions:       serve.ConditionMap(status.Conditions),
		KubernetesStatus: kubernetesView(status.KubernetesStatus),
		CloneStatus:      cloneView(p),
		ShareEndpoint:    status.ShareEndpoint, ShareState: string(status.ShareState),
		Replicas: replicaViews(p), Controllers: controllerViews(p),
		BackupStatus: []resource.BackupStatus{}, RestoreStatus: []resource.RestoreStatus{},
		RebuildStatus:    []resource.RebuildStatus{},
		VolumeAttachment: attachmentFields(v.Name, p.attachment),
	}
	out.Name = v.Name
	out.Standby = status.IsStandby || spec.Standby && state == string(lh.VolumeStateCreating)
	for _, t := range spec.TopologyRequirement {
		out.TopologyRequirement = append(out.TopologyRequirement, resource.TopologyTerm{Zone: t.Zone, Region: t.Region})
	}
	for i := range p.engines {
		addProgress(out, &p.engines[i])
	}
	out.NotReadyMessage = notReady(p, state, robustness)
	out.Ready = out.NotReadyMessage == ""
	out.WaitsFor = findings.Volume(out)
	return out
}

// volumeState is the state shown: an object nobody handled yet is being created.
func volumeState(v *lh.Volume) string {
	switch {
	case v.DeletionTimestamp != nil:
		return string(lh.VolumeStateDeleting)
	case v.Status.State == lh.VolumeStateNew:
		return string(lh.VolumeStateCreating)
	}
	return string(v.Status.State)
}

// notReady returns why a workload may not use the volume now, or nothing. The first rule that
// matches decides.
func notReady(p volumeParts, state, robustness string) string {
	v := p.volume
	unplaced := len(p.replicas) == 0
	for _, r := range p.replicas {
		unplaced = unplaced || r.Spec.NodeID == ""
	}
	clone := v.Status.CloneStatus.State
	scheduled := lh.FindCondition(v.Status.Conditions, lh.VolumeConditionScheduled)
	switch {
	case v.Spec.NodeID == "" && state != string(lh.VolumeStateDetached):
		return fmt.Sprintf("the volume is %s and no node is wanted for it", state)
	case state == string(lh.VolumeStateDetached) && scheduled.Status != lh.ConditionTrue && unplaced &&
		(scheduled.Status == lh.ConditionFalse || !wantsLocal(v)): // else it is placed when it is attached
		return strings.TrimRight("replicas are not scheduled: "+scheduled.Message, ": ")
	case robustness == string(lh.VolumeRobustnessFaulted):
		return "the volume is faulted: no replica has usable data"
	case v.Spec.DataSource != "" && clone != lh.VolumeCloneStateCompleted &&
		clone != lh.VolumeCloneStateCopyCompletedUnhealthy:
		return "the volume is being cloned from " + v.Spec.DataSource
	case v.Status.RestoreRequired && v.Spec.Standby:
		return "the volume is a standby, which takes over each newer backup: activate it to use it"
	case v.Status.RestoreRequired:
		return "the volume is being restored from a backup"
	}
	return ""
}

// wantsLocal says whether a volume wants a replica on the node that it is attached to.
func wantsLocal(v *lh.Volume) bool {
	return v.Spec.DataLocality == lh.DataLocalityBestEffort || v.Spec.DataLocality == lh.DataLocalityStrictLocal
}

func replicaViews(p volumeParts) []resource.Replica {
	modes := map[string]string{}
	for _, e := range p.engines {
		for name, mode := range e.Status.ReplicaModeMap {
			modes[name] = string(mode)
		}
	}
	out := []resource.Replica{}
	for _, r := range p.replicas {
		view := resource.Replica{Name: r.Name, HostID: r.Spec.NodeID, Address: r.Status.IP,
			Running: r.Status.CurrentState == lh.InstanceStateRunning, Image: r.Spec.Image, CurrentImage: r.Status.CurrentImage,
			InstanceManagerName: r.Status.InstanceManagerName, DiskID: r.Spec.DiskID, DiskPath: r.Spec.DiskPath,
			Mode: modes[r.Name], FailedAt: r.Spec.FailedAt, DataEngine: string(r.Spec.DataEngine)}
		if r.Spec.DiskPath != "" && r.Spec.DataDirectoryName != "" {
			view.DataPath = strings.TrimRight(r.Spec.DiskPath, "/") + "/" + replicaDirectory + "/" + r.Spec.DataDirectoryName
		}
		out = append(out, view)
	}
	return out
}

func controllerViews(p volumeParts) []resource.Controller {
	out := []resource.Controller{}
	for _, e := range p.engines {
		var actual int64
		for _, s := range e.Status.Snapshots {
			n, _ := strconv.ParseInt(s.Size, 10, 64)
			actual += n
		}
		if len(e.Status.Snapshots) == 0 && e.Spec.Active {
			actual = p.volume.Status.ActualSize
		}
		out = append(out, resource.Controller{Name: e.Name, HostID: e.Spec.NodeID, Address: e.Status.IP,
			Running: e.Status.CurrentState == lh.InstanceStateRunning, Image: e.Spec.Image, CurrentImage: e.Status.CurrentImage,
			InstanceManagerName: e.Status.InstanceManagerName, Size: decimal(p.volume.UserBytes(e.Status.CurrentSize)),
			ActualSize: decimal(actual), Endpoint: e.Status.Endpoint, LastRestoredBackup: e.Status.LastRestoredBackup,
			RequestedBackupRestore: e.Spec.RequestedBackupRestore, IsExpanding: e.Status.IsExpanding,
			LastExpansionError: e.Status.LastExpansionError, LastExpansionFailedAt: e.Status.LastExpansionFailedAt,
			UnmapMarkSnapChainRemovedEnabled: e.Status.UnmapMarkSnapChainRemovedEnabled})
	}
	return out
}

// addProgress adds what the engine reports of rebuilding, purging and restoring. It knows replicas
// by address.
func addProgress(out *resource.Volume, e *lh.Engine) {
	names := map[string]string{}
	for _, m := range []map[string]string{e.Spec.ReplicaAddressMap, e.Status.CurrentReplicaAddressMap} {
		for name, address := range m {
			names[address] = name
		}
	}
	name := func(address string) string {
		bare := strings.TrimPrefix(address, "tcp://")
		if n, ok := names[bare]; ok {
			return n
		}
		return bare
	}
	for _, address := range slices.Sorted(maps.Keys(e.Status.RebuildStatus)) {
		r := e.Status.RebuildStatus[address]
		from := []string{}
		for _, a := range r.FromReplicaAddressList {
			from = append(from, name(a))
		}
		out.RebuildStatus = append(out.RebuildStatus, resource.RebuildStatus{Replica: name(address), Error: r.Error,
			IsRebuilding: r.IsRebuilding, Progress: r.Progress, State: r.State, FromReplicaList: from})
	}
	for _, address := range slices.Sorted(maps.Keys(e.Status.PurgeStatus)) {
		s := e.Status.PurgeStatus[address]
		out.PurgeStatus = append(out.PurgeStatus, resource.PurgeStatus{Replica: name(address), Error: s.Error,
			IsPurging: s.IsPurging, Progress: s.Progress, State: s.State})
	}
	for _, address := range slices.Sorted(maps.Keys(e.Status.RestoreStatus)) {
		s := e.Status.RestoreStatus[address]
		out.RestoreStatus = append(out.RestoreStatus, resource.RestoreStatus{Replica: name(address), Error: s.Error,
			IsRestoring: s.IsRestoring, LastRestored: s.LastRestored, Progress: s.Progress, State: s.State,
			Filename: s.FileName, BackupURL: s.BackupURL})
	}
	for _, backup := range slices.Sorted(maps.Keys(e.Status.BackupStatus)) {
		s := e.Status.BackupStatus[backup]
		out.BackupStatus = append(out.BackupStatus, resource.BackupStatus{ID: backup, Snapshot: s.SnapshotName,
			Progress: s.Progress, BackupURL: s.BackupURL, Error: s.Error, State: s.State, Replica: name(s.ReplicaAddress)})
	}
}

func kubernetesView(k lh.KubernetesStatus) resource.KubernetesStatus {
	out := resource.KubernetesStatus{PVName: k.PVName, PVStatus: k.PVStatus, Namespace: k.Namespace, PVCName: k.PVCName,
		LastPVCRefAt: k.LastPVCRefAt, LastPodRefAt: k.LastPodRefAt}
	for _, w := range k.WorkloadsStatus {
		out.WorkloadsStatus = append(out.WorkloadsStatus, resource.WorkloadStatus{PodName: w.PodName, PodStatus: w.PodStatus,
			WorkloadName: w.WorkloadName, WorkloadType: w.WorkloadType})
	}
	return out
}

// attachmentFields converts the tickets of a volume, without an envelope. The attachment object may
// not exist yet.
func attachmentFields(volume string, a *lh.VolumeAttachment) resource.VolumeAttachment {
	out := resource.VolumeAttachment{Attachments: map[string]resource.Attachment{}, Volume: volume}
	if a == nil {
		return out
	}
	out.Withdrawals = withdrawals(a)
	for id, t := range a.Spec.AttachmentTickets {
		view := resource.Attachment{AttachmentID: t.ID, AttachmentType: string(t.Type), NodeID: t.NodeID,
			Parameters: t.Parameters, Conditions: []resource.Condition{}, Generation: t.Generation}
		// A status of an older generation speaks of an older ticket.
		if s, ok := a.Status.AttachmentTicketStatuses[id]; ok && s.Generation == t.Generation {
			view.Satisfied, view.Conditions = s.Satisfied, serve.Conditions(s.Conditions)
		}
		out.Attachments[id] = view
	}
	return out
}

// getRates tells what the users of a volume do.
func (a *API) getRates(q *serve.Request) (any, error) {
	var v lh.Volume
	if err := q.Objects.Get(q.Context(), q.Params["name"], &v); err != nil {
		return nil, err
	}
	out := &resource.VolumeRates{Volume: v.Name}
	if a.Rates == nil {
		return out, nil
	}
	if m := a.Rates(q.Context(), v.Name); m != nil {
		*out = resource.VolumeRates{Volume: v.Name, Known: true, ReadBytes: m.GetReadThroughput(),
			WriteBytes: m.GetWriteThroughput(), Reads: m.GetReadIOPS(), Writes: m.GetWriteIOPS(),
			ReadNanos: m.GetReadLatency(), WriteNanos: m.GetWriteLatency()}
	}
	return out, nil
}
