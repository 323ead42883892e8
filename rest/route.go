package rest

import (
	"maps"
	"net/http"
	"time"

	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest/access"
	"ankole.storage/rest/resource"
	"ankole.storage/ui"
)

// handler answers one request with an object to encode, or nil for an empty answer.
type handler func(q *request) (any, error)

// route is one path, a pattern of http.ServeMux, with what can be done there. A segment in braces
// becomes a parameter.
type route struct {
	path    string
	methods map[string]handler
	// actions are what POST with ?action= can do.
	actions map[string]handler
	// open routes answer everybody.
	open bool
	// local routes are answered by every manager itself.
	local bool
	// raw routes write their answer themselves.
	raw http.HandlerFunc
	// stream: the answer goes on as long as the client takes it, within bounds of its own.
	stream bool
}

// request is what a handler knows about the request it serves.
type request struct {
	*http.Request
	server *Server
	// base is scheme, host and prefix in front of /v1, see baseURL.
	base string
	// self is the URL of the request itself as the client sees it, without the query.
	self string
	// params are the values of the path's parameters; none of them is a path itself.
	params map[string]string
	writer http.ResponseWriter
	// caller is who asks.
	caller access.Caller
	// limit is the time that the request has.
	limit time.Duration
}

// healthPath is asked by the kubelet.
const healthPath = naming.HealthPath

// table lists every route.
func (s *Server) table() []route {
	get := func(h handler) map[string]handler { return map[string]handler{http.MethodGet: h} }
	return append(backupRoutes(), []route{
		{path: "/{$}", methods: get(getRoot), open: true},
		{path: "/" + ui.Folder + "/{file}", methods: get(getUIFile), open: true},
		{path: "/v1", methods: get(getVersion)}, {path: "/v1/apiversions", methods: get(listVersions)},
		{path: "/v1/apiversions/v1", methods: get(getVersion)},
		{path: "/v1/schemas", methods: get(listSchemas)},
		{path: "/v1/schemas/{name}", methods: get(getSchema)},
		{path: "/metrics", raw: s.cfg.Metrics.ServeHTTP, open: true},
		{path: healthPath, methods: get(healthz), open: true},
		{path: "/v1/session", open: true, local: true, methods: map[string]handler{http.MethodGet: getSession,
			http.MethodPost: beginSession, http.MethodDelete: endSession}},

		{path: "/v1/volumes", methods: map[string]handler{http.MethodGet: listVolumes, http.MethodPost: createVolume}},
		{path: "/v1/volumes/{name}",
			methods: map[string]handler{http.MethodGet: getVolume, http.MethodDelete: deleteVolume},
			actions: volumeHandlers},
		{path: "/v1/volumerates/{name}", methods: get(getRates)},
		{path: "/v1/dataloss/{name}", methods: map[string]handler{http.MethodGet: getDataLoss,
			http.MethodPost: acceptDataLoss}},
		{path: "/v1/backupdamage/{name}", methods: map[string]handler{http.MethodGet: getBackupDamage,
			http.MethodPost: decideBackupDamage}},
		{path: "/v1/devicekeepers/{name}", methods: map[string]handler{http.MethodPost: noteDeviceKeepers}},
		{path: "/v1/volumeattachments", methods: get(attachments.all)},
		{path: "/v1/volumeattachments/{name}", methods: get(attachments.one)},
		{path: "/v1/nodes", methods: get(listNodes)},
		{path: "/v1/nodes/{name}",
			methods: map[string]handler{http.MethodGet: getNode, http.MethodPut: updateNode, http.MethodDelete: deleteNode},
			actions: map[string]handler{resource.ActionDiskUpdate: updateDisks}},
		{path: "/v1/disktags", methods: get(listDiskTags)}, {path: "/v1/nodetags", methods: get(listNodeTags)},
		{path: "/v1/settings", methods: get(listSettings)},
		{path: "/v1/settings/{name}", methods: map[string]handler{http.MethodGet: getSetting, http.MethodPut: updateSetting}},
		{path: "/v1/engineimages",
			methods: map[string]handler{http.MethodGet: listEngineImages, http.MethodPost: createEngineImage}},
		{path: "/v1/engineimages/{name}",
			methods: map[string]handler{http.MethodGet: getEngineImage, http.MethodDelete: deleteEngineImage}},
		{path: "/v1/instancemanagers", methods: get(instanceManagers.all)},
		{path: "/v1/instancemanagers/{name}", methods: get(instanceManagers.one)},
		{path: "/v1/orphans", methods: get(orphans.all)},
		{path: "/v1/orphans/{name}",
			methods: map[string]handler{http.MethodGet: orphans.one, http.MethodDelete: deleteOrphan}},
		{path: "/v1/recurringjobs", methods: map[string]handler{http.MethodGet: recurringJobs.all,
			http.MethodPost: createRecurringJob}},
		{path: "/v1/recurringjobs/{name}", methods: map[string]handler{http.MethodGet: recurringJobs.one,
			http.MethodPut: updateRecurringJob, http.MethodDelete: deleteRecurringJob}},
		{path: "/v1/backupbackingimages", methods: get(backupBackingImages.all)},
		{path: "/v1/backupbackingimages/{name}", methods: get(backupBackingImages.one)},
		{path: "/v1/backingimages", methods: map[string]handler{http.MethodGet: backingImages.all,
			http.MethodPost: createBackingImage}},
		{path: "/v1/backingimages/{name}", methods: map[string]handler{http.MethodGet: backingImages.one,
			http.MethodDelete: deleteBackingImage}, actions: map[string]handler{
			resource.ActionBackingImageCleanup: cleanUpBackingImage, resource.ActionUpload: uploadBackingImage,
			resource.ActionUpdateMinNumberOfCopies: updateCopies}},
		{path: "/v1/backingimages/{name}/download", raw: s.serveImage, stream: true},
		{path: "/v1/systembackups", methods: get(systemBackups.all)},
		{path: "/v1/systembackups/{name}", methods: get(systemBackups.one)},
		{path: "/v1/systemrestores", methods: get(systemRestores.all)},
		{path: "/v1/systemrestores/{name}", methods: get(systemRestores.one)},
		{path: "/v1/supportbundles", methods: get(supportBundles.all)},
		{path: "/v1/supportbundles/{node}/{name}", methods: get(supportBundles.one)},
		{path: "/v1/supportbundles/{node}/{name}/download"},
		{path: "/v1/instancelogs/{name}", raw: s.serveLog, stream: true},
		{path: "/v1/events", methods: get(listEvents)},
		{path: "/v1/ws/{stream}", raw: s.serveStream, stream: true},
		{path: "/v1/ws/{period}/{stream}", raw: s.serveStream, stream: true},
	}...)
}

// backupRoutes are those of what backup stores have.
func backupRoutes() []route {
	return []route{
		{path: "/v1/backuptargets", methods: map[string]handler{http.MethodGet: backupTargets.all,
			http.MethodPost: createBackupTarget, http.MethodPut: syncBackupTargets}},
		{path: "/v1/backuptargets/{name}", methods: map[string]handler{http.MethodGet: backupTargets.one,
			http.MethodDelete: deleteBackupTarget},
			actions: map[string]handler{resource.ActionBackupTargetUpdate: updateBackupTarget,
				resource.ActionBackupTargetSync: syncBackupTarget}},
		{path: "/v1/backupvolumes", methods: map[string]handler{http.MethodGet: backupVolumes.all,
			http.MethodPut: syncBackupVolumes}},
		{path: "/v1/backupvolumes/{name}", methods: map[string]handler{http.MethodGet: getBackupVolume,
			http.MethodDelete: deleteBackupVolume}, actions: map[string]handler{
			resource.ActionBackupList: listBackups, resource.ActionBackupListByVolume: listBackupsByVolume,
			resource.ActionBackupGet: getBackup, resource.ActionBackupDelete: deleteBackup,
			resource.ActionBackupVolumeSync: syncBackupVolume}},
		{path: "/v1/backupverifications/{name}", methods: map[string]handler{http.MethodGet: getVerification,
			http.MethodPost: orderVerification}},
	}
}

// volumeHandlers are the actions of volumes that are built; those of volumeUpdates are added.
var volumeHandlers = withUpdates(map[string]handler{
	resource.ActionAttach:             attachVolume,
	resource.ActionDetach:             detachVolume,
	resource.ActionSalvage:            salvageVolume,
	resource.ActionActivate:           activateVolume,
	resource.ActionReplicaRemove:      removeReplica,
	resource.ActionExpand:             expandVolume,
	resource.ActionCancelExpansion:    cancelExpansion,
	resource.ActionTrimFilesystem:     trimFilesystem,
	resource.ActionEngineUpgrade:      upgradeEngine,
	resource.ActionSnapshotCreate:     createSnapshot,
	resource.ActionSnapshotList:       listSnapshots,
	resource.ActionSnapshotGet:        getSnapshot,
	resource.ActionSnapshotDelete:     removeSnapshot,
	resource.ActionSnapshotRevert:     revertSnapshot,
	resource.ActionSnapshotPurge:      purgeSnapshots,
	resource.ActionSnapshotBackup:     backUpSnapshot,
	resource.ActionSnapshotCRCreate:   orderSnapshot,
	resource.ActionSnapshotCRList:     listSnapshotObjects,
	resource.ActionSnapshotCRGet:      getSnapshotObject,
	resource.ActionSnapshotCRDelete:   deleteSnapshotObject,
	resource.ActionPVCreate:           createPV,
	resource.ActionPVCCreate:          createPVC,
	resource.ActionRecurringJobAdd:    addVolumeJob,
	resource.ActionRecurringJobList:   listVolumeJobs,
	resource.ActionRecurringJobDelete: removeVolumeJob,
})

func withUpdates(handlers map[string]handler) map[string]handler {
	maps.Copy(handlers, volumeUpdates)
	return handlers
}

// served returns the handlers of a type's actions; only such actions are offered.
func (s *Server) served(typeID string) map[string]handler {
	if t := s.routes[objectPath(typeID)]; t != nil {
		return t.actions
	}
	return nil
}

// objectPath is the path of the objects of a type.
func objectPath(typeID string) string { return "/v1/" + resource.Path(typeID) + "/{name}" }

// handlerOf picks the handler for the method, and for POST the action, of a request, and says what
// the rights call it.
func (t *route) handlerOf(r *http.Request) (h handler, operation string, status int) {
	action := r.URL.Query().Get("action")
	switch {
	case t.raw != nil && r.Method == http.MethodGet:
		return nil, t.rawOperation(r), http.StatusOK
	case r.Method == http.MethodPost && t.actions != nil:
		if h := t.actions[action]; h != nil {
			return h, action + " " + t.path, http.StatusOK
		}
		return nil, "", http.StatusNotFound
	}
	if h := t.methods[r.Method]; h != nil {
		return h, r.Method + " " + t.path, http.StatusOK
	}
	return nil, "", http.StatusMethodNotAllowed
}

// rawOperation is what the rights call a raw route: each stream has its own right.
func (t *route) rawOperation(r *http.Request) string {
	if stream := r.PathValue("stream"); stream != "" {
		return streamOperation + stream
	}
	return http.MethodGet + " " + t.path
}

// healthz answers health checks: a manager that is not ready gets no requests of Services.
func healthz(r *request) (any, error) {
	if ready := r.server.cfg.Ready; ready != nil {
		if err := ready(); err != nil {
			return nil, Refuse(http.StatusServiceUnavailable, err)
		}
	}
	return nil, nil
}
