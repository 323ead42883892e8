package resource

// BackupDamage is what there is to know, and to decide, of a volume that is restored from a backup
// which the store does not have whole. It is our addition.
type BackupDamage struct {
	Volume string `json:"volume"`
	// FromBackup is the URL of the backup; empty: the volume is not from one.
	FromBackup string `json:"fromBackup"`
	// Restoring: it does not hold all of the backup yet. Problem is why the last attempt has failed;
	// empty if it has not.
	Restoring bool   `json:"restoring"`
	Problem   string `json:"problem"`
	// Activating: it is a standby volume that becomes an ordinary one. Held is the backup that it
	// holds then.
	Activating bool   `json:"activating"`
	Held       string `json:"held"`
	// Accepted: what the store does not have becomes zero; a standby volume is activated without the
	// backup that cannot be restored.
	Accepted bool `json:"accepted"`
	// Damage names what is zero and was not acknowledged; empty: nothing.
	Damage string `json:"damage"`
	// Refused is why there is nothing to decide; empty if there is.
	Refused string `json:"refused"`
}

// Decisions about a damaged backup.
const (
	DecisionAccept      = "accept"
	DecisionAcknowledge = "acknowledge"
)

// BackupDamageInput is a decision: accept, while the volume is restored, that what the store does
// not have becomes zero, or that a standby volume is activated with what it holds; or acknowledge
// what is zero.
type BackupDamageInput struct {
	Decision string `json:"decision"`
}
