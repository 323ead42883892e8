package backup

import (
	"net/http"

	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

// Routes are those of what backup stores have.
func Routes() []serve.Route {
	return []serve.Route{
		{Path: "/v1/backuptargets", Methods: map[string]serve.Handler{http.MethodGet: backupTargets.All,
			http.MethodPost: createBackupTarget, http.MethodPut: syncBackupTargets}},
		{Path: "/v1/backuptargets/{name}", Methods: map[string]serve.Handler{http.MethodGet: backupTargets.One,
			http.MethodDelete: deleteBackupTarget},
			Actions: map[string]serve.Handler{resource.ActionBackupTargetUpdate: updateBackupTarget,
				resource.ActionBackupTargetSync: syncBackupTarget}},
		{Path: "/v1/backupvolumes", Methods: map[string]serve.Handler{http.MethodGet: backupVolumes.All,
			http.MethodPut: syncBackupVolumes}},
		{Path: "/v1/backupvolumes/{name}", Methods: map[string]serve.Handler{http.MethodGet: getBackupVolume,
			http.MethodDelete: deleteBackupVolume}, Actions: map[string]serve.Handler{
			resource.ActionBackupList: listBackups, resource.ActionBackupListByVolume: listBackupsByVolume,
			resource.ActionBackupGet: getBackup, resource.ActionBackupDelete: deleteBackup,
			resource.ActionBackupVolumeSync: syncBackupVolume}},
		{Path: "/v1/backupverifications/{name}", Methods: map[string]serve.Handler{
			http.MethodGet: getVerification(ofVolume), http.MethodPost: orderVerification(ofVolume)}},
		{Path: "/v1/backupimageverifications/{name}", Methods: map[string]serve.Handler{
			http.MethodGet: getVerification(ofImage), http.MethodPost: orderVerification(ofImage)}},
		{Path: "/v1/backupbackingimages", Methods: serve.Get(backupBackingImages.All)},
		{Path: "/v1/backupbackingimages/{name}", Methods: map[string]serve.Handler{http.MethodGet: backupBackingImages.One,
			http.MethodDelete: deleteBackupImage},
			Actions: map[string]serve.Handler{resource.ActionBackupImageRestore: restoreBackupImage}},
	}
}

// Streams are the lists of the same.
func Streams() map[string]serve.Stream {
	return map[string]serve.Stream{
		"backuptargets":       backupTargets.Stream(),
		"backupvolumes":       backupVolumes.Stream(),
		"backups":             backups.Stream(),
		"backupbackingimages": backupBackingImages.Stream(),
	}
}
