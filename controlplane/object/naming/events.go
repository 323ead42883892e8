package naming

// Reasons of events. Clients filter by them. Conditions that flip are recorded with their type as
// the reason.
const (
	EventCreate                                 = "Create"
	EventCreated                                = "Created"
	EventDelete                                 = "Delete"
	EventDeleting                               = "Deleting"
	EventFailedDeleting                         = "FailedDeleting"
	EventStart                                  = "Start"
	EventFailedStarting                         = "FailedStarting"
	EventStop                                   = "Stop"
	EventFailedStopping                         = "FailedStopping"
	EventUpdate                                 = "Update"
	EventRebuilt                                = "Rebuilt"
	EventRebuilding                             = "Rebuilding"
	EventFailedRebuilding                       = "FailedRebuilding"
	EventVolumeCloneCompleted                   = "VolumeCloneCompleted"
	EventVolumeCloneCopyCompleteAwaitingHealthy = "VolumeCloneCopyCompleteAwaitingHealthy"
	EventVolumeCloneInitiated                   = "VolumeCloneInitiated"
	EventVolumeCloneFailed                      = "VolumeCloneFailed"
	EventDataLossDecisionOver                   = "DataLossDecisionOver"
	EventFailedStartingSnapshotPurge            = "FailedStartingSnapshotPurge"
	EventTimeoutSnapshotPurge                   = "TimeoutSnapshotPurge"
	EventFailedSnapshotPurge                    = "FailedSnapshotPurge"
	EventRestored                               = "Restored"
	EventFailedRestore                          = "FailedRestore"
	EventFailedFilesystemTrim                   = "FailedFilesystemTrim"
	EventFailedExpansion                        = "FailedExpansion"
	EventSucceededExpansion                     = "SucceededExpansion"
	EventCanceledExpansion                      = "CanceledExpansion"
	EventAttached                               = "Attached"
	EventDetached                               = "Detached"
	EventHealthy                                = "Healthy"
	EventFaulted                                = "Faulted"
	EventDegraded                               = "Degraded"
	EventOrphaned                               = "Orphaned"
	EventUnknown                                = "Unknown"
	EventEvictionAutomatic                      = "EvictionAutomatic"
	EventEvictionUserRequested                  = "EvictionUserRequested"
	EventEvictionCanceled                       = "EvictionCanceled"
	EventEvictionFailed                         = "EvictionFailed"
	EventDetachedUnexpectedly                   = "DetachedUnexpectedly"
	EventRemount                                = "Remount"
	EventAutoSalvaged                           = "AutoSalvaged"
	EventFetching                               = "Fetching"
	EventFetched                                = "Fetched"
	EventSyncing                                = "Syncing"
	EventSynced                                 = "Synced"
	EventFailedSnapshotDataIntegrityCheck       = "FailedSnapshotDataIntegrityCheck"
	EventFailed                                 = "Failed"
	EventReady                                  = "Ready"
	EventUploaded                               = "Uploaded"
	EventUpgrade                                = "Upgrade"
	EventFailedUpgradePreCheck                  = "FailedUpgradePreCheck"
	EventFailedUpgradePostCheck                 = "FailedUpgradePostCheck"
	EventPassedUpgradeCheck                     = "PassedUpgradeCheck"
	EventMigrationFailed                        = "MigrationFailed"
	EventDefaultIgnored                         = "DefaultIgnored" // ours, not the reference's
	EventWaiting                                = "Waiting"        // ours, not the reference's
	EventVerified                               = "Verified"       // ours, not the reference's
	EventDamaged                                = "Damaged"        // ours, not the reference's
	EventOrphanCleanupCompleted                 = "OrphanCleanupCompleted"
)

// EventSource returns the name under which a controller records events, for example
// EventSource("engine-image").
func EventSource(controller string) string { return "longhorn-" + controller + "-controller" }
