package rest

import (
	"net/http"

	"ankole.storage/rest/resource"
)

// backupRoutes are those of what backup stores have.
func backupRoutes() []Route {
	return []Route{
		{Path: "/v1/backuptargets", Methods: map[string]Handler{http.MethodGet: backupTargets.All,
			http.MethodPost: createBackupTarget, http.MethodPut: syncBackupTargets}},
		{Path: "/v1/backuptargets/{name}", Methods: map[string]Handler{http.MethodGet: backupTargets.One,
			http.MethodDelete: deleteBackupTarget},
			Actions: map[string]Handler{resource.ActionBackupTargetUpdate: updateBackupTarget,
				resource.ActionBackupTargetSync: syncBackupTarget}},
		{Path: "/v1/backupvolumes", Methods: map[string]Handler{http.MethodGet: backupVolumes.All,
			http.MethodPut: syncBackupVolumes}},
		{Path: "/v1/backupvolumes/{name}", Methods: map[string]Handler{http.MethodGet: getBackupVolume,
			http.MethodDelete: deleteBackupVolume}, Actions: map[string]Handler{
			resource.ActionBackupList: listBackups, resource.ActionBackupListByVolume: listBackupsByVolume,
			resource.ActionBackupGet: getBackup, resource.ActionBackupDelete: deleteBackup,
			resource.ActionBackupVolumeSync: syncBackupVolume}},
		{Path: "/v1/backupverifications/{name}", Methods: map[string]Handler{http.MethodGet: getVerification,
			http.MethodPost: orderVerification}},
		{Path: "/v1/backupbackingimages", Methods: Get(backupBackingImages.All)},
		{Path: "/v1/backupbackingimages/{name}", Methods: Get(backupBackingImages.One)},
	}
}

// backupStreams are the lists of the same.
func backupStreams() map[string]Stream {
	return map[string]Stream{
		"backuptargets":       backupTargets.Stream(),
		"backupvolumes":       backupVolumes.Stream(),
		"backups":             backups.Stream(),
		"backupbackingimages": backupBackingImages.Stream(),
	}
}
