// Package setting holds the one table of the settings of the cluster: what they are called, which
// values they take and what happens when one changes.
//
// A setting is stored as an object whose value is a string. The table says how the string is read:
// as a number, a truth value, one of several options, or free text with a form of its own. Settings
// that could differ between data engines are stored as a JSON object from engine to value,
// {"v1":"3","v2":"3"}; older clients write the plain value, so every reader takes both forms and
// Normalize turns the plain form into the other.
//
// REST, command line, webhooks and controllers are driven by this table: a new setting is one entry
// here.
package setting

import (
	"errors"
	"fmt"
	"slices"
)

// Type is how the value of a setting is read.
type Type string

// Types of settings. Deprecated ones are read only and hidden from lists meant for people.
const (
	TypeString     Type = "string"
	TypeInt        Type = "int"
	TypeFloat      Type = "float"
	TypeBool       Type = "bool"
	TypeDeprecated Type = "deprecated"
)

// Category groups settings on a page.
type Category string

// Categories, spelt as clients expect them.
const (
	CategoryGeneral    Category = "general"
	CategoryBackup     Category = "backup"
	CategorySnapshot   Category = "snapshot"
	CategoryOrphan     Category = "orphan"
	CategoryScheduling Category = "scheduling"
	CategoryDangerZone Category = "danger Zone"
	CategorySystemInfo Category = "system info"
)

// Apply says when a change takes effect.
type Apply int

const (
	// ApplyNow settings hold from the moment they are saved.
	ApplyNow Apply = iota
	// ApplyWhenIdle settings reach an instance manager once it holds no instance.
	ApplyWhenIdle
	// ApplyWhenDetached settings are saved at any time and wait until all volumes are detached.
	ApplyWhenDetached
	// ApplyWhenSharesDetached settings wait until all volumes used by many nodes are detached.
	ApplyWhenSharesDetached
	// ApplyRefusedWhileAttached settings cannot be saved while any volume is not detached.
	ApplyRefusedWhileAttached
	// ApplyFixedByNodes settings cannot be changed once a Node object exists.
	ApplyFixedByNodes
)

// Range bounds a number; both ends belong to it.
type Range struct {
	Minimum int
	// Maximum is nil if there is none.
	Maximum *int
}

func from(minimum int) *Range { return &Range{Minimum: minimum} }

func between(minimum, maximum int) *Range { return &Range{Minimum: minimum, Maximum: &maximum} }

// Definition is the entry of one setting in the table.
type Definition struct {
	Name        string
	DisplayName string
	Description string
	Category    Category
	Type        Type
	// Required settings cannot be empty.
	Required bool
	// ReadOnly settings are changed by the manager only.
	ReadOnly bool
	// Default is in the stored form.
	Default string
	// Options are the values allowed; empty means any.
	Options []string
	// Range bounds numbers; nil means unbounded.
	Range *Range
	// DataEngineSpecific settings are stored as a JSON object from data engine to value.
	DataEngineSpecific bool
	// OnlyDefault is why no other value than the default is possible; empty where others are.
	OnlyDefault string
	Apply       Apply
}

// ErrUnknown marks errors about a name that is not in the table.
var ErrUnknown = errors.New("is not supported")

var (
	definitions = slices.Concat(generalDefinitions, dangerDefinitions, schedulingDefinitions, snapshotDefinitions,
		backupDefinitions, orphanDefinitions, systemDefinitions, legacyDefinitions, foreignDefinitions, additionalDefinitions)
	byName = index(definitions)
)

func index(all []Definition) map[string]Definition {
	m := make(map[string]Definition, len(all))
	for _, d := range all {
		m[d.Name] = d
	}
	return m
}

// Definitions returns the table. Its order is that of the categories, not of the names.
func Definitions() []Definition { return slices.Clone(definitions) }

// Lookup returns the definition of a setting, or an error that is ErrUnknown.
func Lookup(name string) (Definition, error) {
	d, ok := byName[name]
	if !ok {
		return Definition{}, fmt.Errorf("setting %s %w", name, ErrUnknown)
	}
	return d, nil
}

// Replaced lists settings of older versions that are not kept, with the name of what took their
// place. Objects with these names may be deleted.
var Replaced = map[string]string{
	"backup-target":                              "the field backupTargetURL of the BackupTarget named default",
	"backup-target-credential-secret":            "the field credentialSecret of the BackupTarget named default",
	"backupstore-poll-interval":                  "the field pollInterval of the BackupTarget named default",
	"orphan-auto-deletion":                       OrphanResourceAutoDeletion,
	"storage-network-for-rwx-volume-enabled":     EndpointNetworkForRWXVolume,
	"allow-node-drain-with-last-healthy-replica": NodeDrainPolicy,
	"disable-replica-rebuild":                    ConcurrentReplicaRebuildPerNodeLimit,
	"default-share-manager-image":                "",
	"mkfs-ext4-parameters":                       "the StorageClass parameter mkfsParams",
	"volume-attachment-recovery-policy":          "",
}
