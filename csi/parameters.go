package csi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"ankole.storage/rest/client"
	restresource "ankole.storage/rest/resource"
)

// Names of parameters that more than the table knows.
const (
	paramFSType     = "fsType"
	paramMkfs       = "mkfsParams"
	paramExclusive  = "exclusive"
	paramEncrypted  = "encrypted"
	paramReplicas   = "numberOfReplicas"
	paramDiskTags   = "diskSelector"
	paramNodeTags   = "nodeSelector"
	paramTopology   = "volumeTopology"
	paramStrict     = "strictTopology"
	paramCapacity   = "storageCapacityMode"
	reservedPrefix  = "csi.storage.k8s.io/"
	missingBackups  = "needs backups, which this version does not have"
	missingImages   = "needs backing images, which this version does not have"
	missingShares   = "needs shares, which this version does not have"
	topologyAny     = "any"
	topologyZonal   = "zonal"
	topologyRegion  = "regional"
	capacityOfNode  = "node"
	capacityOfZone  = "zone"
	defaultStaleMin = 2880
)

// wish is what a StorageClass and a claim ask for.
type wish struct {
	// volume is what the manager is asked to make.
	volume    client.VolumeSpec
	fsType    string
	exclusive bool
	// mkfs are further arguments of mkfs.
	mkfs []string
	// topologyMode is how far replicas may spread; strict: only where the claim may be used.
	topologyMode string
	strict       bool
	capacity     string
}

// parameter is a row of the table of StorageClass parameters. The names are those of the reference.
type parameter struct {
	name string
	// set judges a value and puts it into the wish; nil: it says nothing in this version.
	set func(w *wish, value string) error
	// action of the manager that changes it on a volume there is; empty: fixed at creation.
	action string
	// field of that action's input; empty: the name.
	field string
	// number: the input takes a number.
	number bool
}

// override is what most fields take that follow a setting.
var override = []string{"ignored", "enabled", "disabled"}

var localities = []string{"disabled", "best-effort", "strict-local"}

// parameters of a StorageClass and, those with an action, of a VolumeAttributesClass.
var parameters = []parameter{
	{name: paramReplicas, set: number(1, 20, func(s *client.VolumeSpec) *int { return &s.NumberOfReplicas }),
		action: restresource.ActionUpdateReplicaCount, field: "replicaCount", number: true},
	{name: "staleReplicaTimeout", set: number(0, 1<<30,
		func(s *client.VolumeSpec) *int { return &s.StaleReplicaTimeout })},
	{name: "dataLocality", set: word(localities, func(s *client.VolumeSpec) *string { return &s.DataLocality }),
		action: restresource.ActionUpdateDataLocality},
	{name: "replicaAutoBalance", set: word([]string{"ignored", "disabled", "least-effort", "best-effort"},
		func(s *client.VolumeSpec) *string { return &s.ReplicaAutoBalance }), action: "updateReplicaAutoBalance"},
	{name: paramDiskTags, set: tags(func(s *client.VolumeSpec) *[]string { return &s.DiskSelector })},
	{name: paramNodeTags, set: tags(func(s *client.VolumeSpec) *[]string { return &s.NodeSelector })},
	{name: "migratable", set: truth(func(w *wish) *bool { return &w.volume.Migratable })},
	{name: paramEncrypted, set: truth(func(w *wish) *bool { return &w.volume.Encrypted })},
	{name: "share", set: never(missingShares)},
	{name: paramExclusive, set: truth(func(w *wish) *bool { return &w.exclusive })},
	{name: "disableRevisionCounter", set: truth(func(w *wish) *bool { return &w.volume.RevisionCounterDisabled })},
	{name: "unmapMarkSnapChainRemoved", set: word(override,
		func(s *client.VolumeSpec) *string { return &s.UnmapMarkSnapChainRemoved }),
		action: "updateUnmapMarkSnapChainRemoved"},
	{name: "replicaSoftAntiAffinity", set: word(override,
		func(s *client.VolumeSpec) *string { return &s.ReplicaSoftAntiAffinity }), action: "updateReplicaSoftAntiAffinity"},
	{name: "replicaZoneSoftAntiAffinity", set: word(override, func(s *client.VolumeSpec) *string {
		return &s.ReplicaZoneSoftAntiAffinity
	}), action: "updateReplicaZoneSoftAntiAffinity"},
	{name: "replicaDiskSoftAntiAffinity", set: word(override, func(s *client.VolumeSpec) *string {
		return &s.ReplicaDiskSoftAntiAffinity
	}), action: "updateReplicaDiskSoftAntiAffinity"},
	{name: "frontend", set: word([]string{"blockdev"}, func(s *client.VolumeSpec) *string { return &s.Frontend })},
	{name: "freezeFilesystemForSnapshot", set: word(override, func(s *client.VolumeSpec) *string {
		return &s.FreezeFilesystemForSnapshot
	}), action: "updateFreezeFilesystemForSnapshot"},
	{name: "snapshotDataIntegrity", set: word([]string{"ignored", "disabled", "enabled", "fast-check"},
		func(s *client.VolumeSpec) *string { return &s.SnapshotDataIntegrity }), action: "updateSnapshotDataIntegrity"},
	{name: "snapshotMaxCount", set: number(2, 250, func(s *client.VolumeSpec) *int { return &s.SnapshotMaxCount }),
		action: "updateSnapshotMaxCount", number: true},
	{name: "snapshotMaxSize", set: quantity(func(s *client.VolumeSpec) *string { return &s.SnapshotMaxSize }),
		action: "updateSnapshotMaxSize"},
	{name: "offlineRebuilding", set: word(override, func(s *client.VolumeSpec) *string { return &s.OfflineRebuilding }),
		action: "offlineReplicaRebuilding"},
	{name: "rebuildConcurrentSyncLimit", set: number(0, 5, func(s *client.VolumeSpec) *int {
		return &s.RebuildConcurrentSyncLimit
	}), action: "updateRebuildConcurrentSyncLimit", number: true},
	{name: "backupTargetName", set: word(nil, func(s *client.VolumeSpec) *string { return &s.BackupTargetName }),
		action: "updateBackupTargetName"},
	{name: "backupBlockSize", set: quantity(func(s *client.VolumeSpec) *string { return &s.BackupBlockSize })},
	{name: "fromBackup", set: never(missingBackups)},
	{name: "dataSource", set: never("would give whoever uses the class the content of that volume: a claim names the source " +
		"of its content itself, in spec.dataSource")},
	{name: "cloneMode", set: word([]string{"full-copy"}, func(s *client.VolumeSpec) *string { return &s.CloneMode })},
	{name: "recurringJobSelector", set: recurringJobs},
	{name: "dataEngine", set: word([]string{"v1"}, func(s *client.VolumeSpec) *string { return &s.DataEngine })},
	{name: "deleteSnapshotsWithVolume", set: truth(func(w *wish) *bool { return &w.volume.DeleteSnapshotsWithVolume })},
	{name: paramFSType, set: fileSystem},
	{name: reservedPrefix + "fstype", set: fileSystem},
	{name: paramTopology, set: choice([]string{topologyAny, topologyZonal, topologyRegion},
		func(w *wish) *string { return &w.topologyMode })},
	{name: paramStrict, set: truth(func(w *wish) *bool { return &w.strict })},
	{name: paramCapacity, set: choice([]string{capacityOfNode, capacityOfZone},
		func(w *wish) *string { return &w.capacity })},
	{name: paramMkfs, set: mkfsArguments},
	// For shares only, and without one they say nothing.
	{name: "nfsOptions"}, {name: "shareManagerNodeSelector"}, {name: "shareManagerTolerations"},
	{name: "backingImage", set: never(missingImages)},
	{name: "backingImageDataSourceType", set: never(missingImages)},
	{name: "backingImageDataSourceParameters", set: never(missingImages)},
	{name: "backingImageChecksum", set: never(missingImages)},
	{name: "backingImageMinNumberOfCopies", set: never(missingImages)},
	{name: "backingImageNodeSelector", set: never(missingImages)},
	{name: "backingImageDiskSelector", set: never(missingImages)},
}

// find returns the row of a parameter; the reference's names are the same in any case.
func find(name string) (*parameter, bool) {
	i := slices.IndexFunc(parameters, func(p parameter) bool { return strings.EqualFold(p.name, name) })
	if i < 0 {
		return nil, false
	}
	return &parameters[i], true
}

// parse reads the parameters of a StorageClass. An empty value is as good as none. unknown are
// those that the table does not have: classes in use carry parameters of other versions, so that
// they are passed over.
func parse(given map[string]string) (w wish, unknown []string, err error) {
	w.topologyMode = topologyAny
	w.volume.StaleReplicaTimeout, w.volume.RevisionCounterDisabled = defaultStaleMin, true
	for _, name := range slices.Sorted(maps.Keys(given)) {
		p, ok := find(name)
		switch {
		case !ok && !strings.HasPrefix(name, reservedPrefix):
			unknown = append(unknown, name)
		case !ok || p.set == nil || given[name] == "":
		default:
			if err := p.set(&w, given[name]); err != nil {
				return w, nil, refuse("parameter %s: %v", name, err)
			}
		}
	}
	return w, unknown, nil
}

// forNode are the parameters that the node looks at. It finds them in the volume context.
var forNode = []string{paramFSType, paramMkfs, paramEncrypted, paramExclusive}

// parseContext reads the parameters in a volume context that are for the node, by the same names as
// parse: in any case. The others were judged when the volume was made.
func parseContext(given map[string]string) (wish, error) {
	own := map[string]string{}
	for name, value := range given {
		if p, ok := find(name); ok && slices.Contains(forNode, p.name) {
			own[name] = value
		}
	}
	w, _, err := parse(own)
	return w, err
}

// change is an action of the manager that makes a volume what a VolumeAttributesClass asks for.
type change struct {
	name, action string
	input        map[string]any
}

// parseMutable reads the parameters of a VolumeAttributesClass. Here nothing is passed over: what
// is asked for would not be done.
func parseMutable(given map[string]string) ([]change, error) {
	var all []change
	for _, name := range slices.Sorted(maps.Keys(given)) {
		p, ok := find(name)
		if !ok || p.action == "" {
			return nil, refuse("parameter %s cannot be changed: use one of %s", name, strings.Join(mutable(), ", "))
		}
		var w wish
		if err := p.set(&w, given[name]); err != nil {
			return nil, refuse("parameter %s: %v", name, err)
		}
		var value any = given[name]
		if p.number {
			value, _ = strconv.Atoi(given[name]) // it has been judged
		}
		field := p.field
		if field == "" {
			field = p.name
		}
		all = append(all, change{name, p.action, map[string]any{field: value}})
	}
	return all, nil
}

// mutable are the names of parameters that can be changed.
func mutable() (names []string) {
	for _, p := range parameters {
		if p.action != "" {
			names = append(names, p.name)
		}
	}
	return names
}

func oneOf(value string, words []string) error {
	if words != nil && !slices.Contains(words, value) {
		return fmt.Errorf("%q is not one of %s", value, strings.Join(words, ", "))
	}
	return nil
}

// choice is one of some words, or with nil any.
func choice(words []string, field func(*wish) *string) func(*wish, string) error {
	return func(w *wish, value string) error {
		*field(w) = value
		return oneOf(value, words)
	}
}

func word(words []string, field func(*client.VolumeSpec) *string) func(*wish, string) error {
	return choice(words, func(w *wish) *string { return field(&w.volume) })
}

func number(least, most int, field func(*client.VolumeSpec) *int) func(*wish, string) error {
	return func(w *wish, value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < least || n > most {
			return fmt.Errorf("%q is not a number from %d to %d", value, least, most)
		}
		*field(&w.volume) = n
		return nil
	}
}

func truth(field func(*wish) *bool) func(*wish, string) error {
	return func(w *wish, value string) (err error) {
		if *field(w), err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("%q is not true or false", value)
		}
		return nil
	}
}

// tags are separated by commas; blanks around them do not count.
func tags(field func(*client.VolumeSpec) *[]string) func(*wish, string) error {
	return func(w *wish, value string) error {
		for tag := range strings.SplitSeq(value, ",") {
			if tag = strings.TrimSpace(tag); tag != "" {
				*field(&w.volume) = append(*field(&w.volume), tag)
			}
		}
		return nil
	}
}

func quantity(field func(*client.VolumeSpec) *string) func(*wish, string) error {
	return func(w *wish, value string) error {
		if n, err := resource.ParseQuantity(value); err != nil || n.Sign() < 0 {
			return fmt.Errorf("%q is not a number of bytes or a quantity such as 2Mi", value)
		}
		*field(&w.volume) = value
		return nil
	}
}

// never refuses what needs something that is not built; false asks for nothing.
func never(why string) func(*wish, string) error {
	return func(_ *wish, value string) error {
		if no, err := strconv.ParseBool(value); err == nil && !no {
			return nil
		}
		return fmt.Errorf("%q %s", value, why)
	}
}

func fileSystem(w *wish, value string) error {
	if w.fsType != "" && w.fsType != value {
		return fmt.Errorf("%q differs from the other one given, %q", value, w.fsType)
	}
	w.fsType = value
	return oneOf(value, fileSystems)
}

// mkfsArguments are separated by blanks.
func mkfsArguments(w *wish, value string) error {
	w.mkfs = strings.Fields(value)
	return nil
}

// recurringJobs is a JSON list of {name, isGroup}.
func recurringJobs(w *wish, value string) error {
	var jobs []client.RecurringJobName
	decoder := json.NewDecoder(strings.NewReader(value))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&jobs); err != nil {
		return fmt.Errorf(`%q is not a list such as [{"name":"daily","isGroup":false}]: %v`, value, err)
	}
	for _, j := range jobs {
		if j.Name == "" {
			return fmt.Errorf("%q has a job without a name", value)
		}
	}
	w.volume.RecurringJobSelector = jobs
	return nil
}
