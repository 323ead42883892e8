package resource

// States of a verification.
const (
	VerificationNone       = "none"
	VerificationWaiting    = "waiting"
	VerificationInProgress = "inProgress"
	VerificationDone       = "done"
)

// BackupVerification is how far the latest verification of a backup volume, or of the backup of a
// backing image, is, and what it has found. It is our addition.
type BackupVerification struct {
	// BackupVolume is the name of the object, Volume that of the volume; both are empty where it is of
	// a backing image.
	BackupVolume string `json:"backupVolume"`
	Volume       string `json:"volume"`
	// BackupBackingImage is the name of the object, BackingImage that of the image; else empty.
	BackupBackingImage string `json:"backupBackingImage"`
	BackingImage       string `json:"backingImage"`
	// Target is the name of the store.
	Target string `json:"target"`
	// State is none, waiting (for its beginning), inProgress or done.
	State string `json:"state"`
	// RequestedAt is the latest request (RFC 3339); StartedAt and EndedAt are of the one in the state;
	// empty: it has not begun, or not ended.
	RequestedAt string `json:"requestedAt"`
	StartedAt   string `json:"startedAt"`
	EndedAt     string `json:"endedAt"`
	// Progress goes from 0 to 100; Blocks were read, ReadBytes of the store.
	Progress  int   `json:"progress"`
	Blocks    int64 `json:"blocks"`
	ReadBytes int64 `json:"readBytes"`
	// Backups are those that are verified, with the number of faults of each; of images by the names
	// of these, with others that share what is damaged.
	Backups []VerifiedBackup `json:"backups"`
	// Faults are the first of FaultCount.
	Faults     []BackupFault `json:"faults"`
	FaultCount int64         `json:"faultCount"`
	// Error is why it does not go on now, or has ended before its time; empty if nothing is wrong with
	// it.
	Error string `json:"error"`
}

// VerifiedBackup is a backup with the number of its blocks and records that are damaged or missing.
type VerifiedBackup struct {
	Name   string `json:"name"`
	Faults int64  `json:"faults"`
}

// BackupFault is an object of a store that is damaged or missing.
type BackupFault struct {
	// Kind is missing, damaged (both of blocks) or record.
	Kind    string `json:"kind"`
	Object  string `json:"object"`
	Message string `json:"message"`
	// Backups are the first of BackupCount that cannot be restored whole because of it.
	Backups     []string `json:"backups"`
	BackupCount int64    `json:"backupCount"`
}

// VerifyBackupsInput orders a verification. BandwidthLimit is what it reads at most, in MiB per
// second; 0: as setting backup-verify-bandwidth-limit says.
type VerifyBackupsInput struct {
	BandwidthLimit int64 `json:"bandwidthLimit"`
}
