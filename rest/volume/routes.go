package volume

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/rpc/ptypes"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

// API answers requests about volumes and what is a part of them.
type API struct {
	// EngineImage is the default engine image, used until setting default-engine-image is filled.
	EngineImage string
	// Snapshots returns what has engines work on snapshots, nil while this process cannot reach them.
	// Nil: such actions are refused.
	Snapshots func() Snapshots
	// Rates asks the engine of a volume what its users do; nil if it does not answer. Nil: nobody is
	// asked.
	Rates func(ctx context.Context, volume string) *ptypes.Metrics
	// Now gives the time.
	Now func() time.Time

	cache cache
	// claims is held while a PersistentVolume is made: one at a time looks whether there is one.
	claims sync.Mutex
}

// Routes are those of volumes, their attachments and recurring jobs.
func (a *API) Routes() []serve.Route {
	return []serve.Route{
		{Path: "/v1/volumes", Methods: map[string]serve.Handler{http.MethodGet: a.listVolumes,
			http.MethodPost: a.createVolume}},
		{Path: "/v1/volumes/{name}",
			Methods: map[string]serve.Handler{http.MethodGet: getVolume, http.MethodDelete: deleteVolume},
			Actions: a.actions(), Limits: map[string]time.Duration{resource.ActionTrimFilesystem: trimLimit}},
		{Path: "/v1/volumerates/{name}", Methods: serve.Get(a.getRates)},
		{Path: "/v1/dataloss/{name}", Methods: map[string]serve.Handler{http.MethodGet: getDataLoss,
			http.MethodPost: acceptDataLoss}},
		{Path: "/v1/backupdamage/{name}", Methods: map[string]serve.Handler{http.MethodGet: getBackupDamage,
			http.MethodPost: decideBackupDamage}},
		{Path: "/v1/devicekeepers/{name}", Methods: map[string]serve.Handler{http.MethodPost: a.noteDeviceKeepers}},
		{Path: "/v1/volumeattachments", Methods: serve.Get(attachments.All)},
		{Path: "/v1/volumeattachments/{name}", Methods: serve.Get(attachments.One)},
		{Path: "/v1/recurringjobs", Methods: map[string]serve.Handler{http.MethodGet: recurringJobs.All,
			http.MethodPost: createRecurringJob}},
		{Path: "/v1/recurringjobs/{name}", Methods: map[string]serve.Handler{http.MethodGet: recurringJobs.One,
			http.MethodPut: updateRecurringJob, http.MethodDelete: deleteRecurringJob}},
	}
}

// Streams are the lists of the same.
func (a *API) Streams() map[string]serve.Stream {
	return map[string]serve.Stream{
		"volumes": {List: a.listVolumes, Of: volumeOf, Since: a.volumesSince,
			Kinds: []client.Object{&lh.Volume{}, &lh.Engine{}, &lh.Replica{}, &lh.VolumeAttachment{}}},
		"volumeattachments": attachments.Stream(),
		"recurringjobs":     recurringJobs.Stream(),
	}
}

// actions are those of volumes that are built; those of volumeUpdates are added.
func (a *API) actions() map[string]serve.Handler {
	all := map[string]serve.Handler{
		resource.ActionAttach:             attachVolume,
		resource.ActionDetach:             detachVolume,
		resource.ActionSalvage:            salvageVolume,
		resource.ActionActivate:           activateVolume,
		resource.ActionReplicaRemove:      removeReplica,
		resource.ActionExpand:             expandVolume,
		resource.ActionCancelExpansion:    cancelExpansion,
		resource.ActionTrimFilesystem:     a.withSnapshots("trim the file system", trimFilesystem),
		resource.ActionEngineUpgrade:      a.upgradeEngine,
		resource.ActionSnapshotCreate:     a.withSnapshot("create snapshot", createSnapshot),
		resource.ActionSnapshotList:       a.withSnapshots("list snapshots", listSnapshots),
		resource.ActionSnapshotGet:        a.withSnapshot("get snapshot", getSnapshot),
		resource.ActionSnapshotDelete:     a.withSnapshot("delete snapshot", removeSnapshot),
		resource.ActionSnapshotRevert:     a.withSnapshot("revert snapshot", revertSnapshot),
		resource.ActionSnapshotPurge:      a.withSnapshots("purge snapshots", purgeSnapshots),
		resource.ActionSnapshotBackup:     backUpSnapshot,
		resource.ActionSnapshotCRCreate:   orderSnapshot,
		resource.ActionSnapshotCRList:     listSnapshotObjects,
		resource.ActionSnapshotCRGet:      getSnapshotObject,
		resource.ActionSnapshotCRDelete:   deleteSnapshotObject,
		resource.ActionPVCreate:           a.createPV,
		resource.ActionPVCCreate:          createPVC,
		resource.ActionRecurringJobAdd:    addVolumeJob,
		resource.ActionRecurringJobList:   listVolumeJobs,
		resource.ActionRecurringJobDelete: removeVolumeJob,
	}
	maps.Copy(all, volumeUpdates)
	return all
}

// UpdateActions are the names of the actions that change one field of what is wanted of a volume.
func UpdateActions() []string { return slices.Sorted(maps.Keys(volumeUpdates)) }
