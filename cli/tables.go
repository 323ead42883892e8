package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"ankole.storage/rest/resource"
)

// The rows of the tables. A replica is shown with the volume it belongs to.
type (
	volumeRow  = resource.Volume
	nodeRow    = resource.Node
	settingRow = resource.Setting
	replicaRow struct {
		Volume string `json:"volume"`
		resource.Replica
	}
)

func volumeKind(now func() time.Time) kind[volumeRow] {
	return kind[volumeRow]{
		name: "volume", id: func(v volumeRow) string { return v.Name },
		none: "no volumes; create one with: ankole volume create NAME --size 1Gi",
		columns: []column[volumeRow]{
			{header: "NAME", value: func(v volumeRow) string { return v.Name }},
			{header: "SIZE", right: true, value: func(v volumeRow) string { return sizeText(v.Size) },
				number: func(v volumeRow) float64 { return bytesIn(v.Size) }},
			{header: "STATE", value: func(v volumeRow) string { return v.State }},
			{header: "ROBUSTNESS", value: func(v volumeRow) string { return v.Robustness }},
			{header: "REPLICAS", value: replicasText},
			{header: "NODE", value: attachedTo},
			{header: "ENDPOINT", value: endpoint},
			{header: "AGE", value: func(v volumeRow) string { return age(v.Created, now()) },
				number: func(v volumeRow) float64 { return ageSeconds(v.Created, now()) }},
			{header: "USED", wide: true, right: true, value: usedText, number: usedBytes},
			{header: "LOCALITY", wide: true, value: func(v volumeRow) string { return v.DataLocality }},
			{header: "ACCESS", wide: true, value: func(v volumeRow) string { return v.AccessMode }},
			{header: "IMAGE", wide: true, value: func(v volumeRow) string { return v.CurrentImage }},
			{header: "NOTE", wide: true, value: note},
		},
	}
}

// replicasText counts the replicas in sync of an attached volume, or those placed of another, out
// of those wanted.
func replicasText(v volumeRow) string {
	have := 0
	for _, r := range v.Replicas {
		if v.State == "attached" && r.Mode == "RW" || v.State != "attached" && r.HostID != "" && r.FailedAt == "" {
			have++
		}
	}
	text := fmt.Sprintf("%d/%d", have, v.NumberOfReplicas)
	if p, ok := rebuilding(v); ok {
		text += fmt.Sprintf(" (rebuild %d%%)", p)
	}
	return text
}

// rebuilding returns the progress of the slowest rebuild under way.
func rebuilding(v volumeRow) (percent int, ok bool) {
	percent = 100
	for _, r := range v.RebuildStatus {
		if r.IsRebuilding {
			percent, ok = min(percent, r.Progress), true
		}
	}
	return percent, ok
}

// attachedTo is the node of the running engine, or else the one a ticket asks for.
func attachedTo(v volumeRow) string {
	for _, c := range v.Controllers {
		if c.HostID != "" {
			return c.HostID
		}
	}
	for _, id := range sortedKeys(v.VolumeAttachment.Attachments) {
		return v.VolumeAttachment.Attachments[id].NodeID + " (wanted)"
	}
	return ""
}

func endpoint(v volumeRow) string {
	for _, c := range v.Controllers {
		if c.Endpoint != "" {
			return c.Endpoint
		}
	}
	return ""
}

func usedText(v volumeRow) string {
	for _, c := range v.Controllers {
		return sizeText(c.ActualSize)
	}
	return ""
}

func usedBytes(v volumeRow) float64 {
	for _, c := range v.Controllers {
		return bytesIn(c.ActualSize)
	}
	return 0
}

// note is what a person should know of a volume that is not as it should be.
func note(v volumeRow) string {
	if c, ok := v.Conditions["Scheduled"]; ok && c.Status == "False" {
		return "not all replicas are scheduled: " + c.Message
	}
	if v.State == "attached" || v.State == "detached" {
		return v.NotReadyMessage
	}
	return ""
}

var replicaKind = kind[replicaRow]{
	name: "replica", id: func(r replicaRow) string { return r.Name },
	none: "no replicas; create a volume with: ankole volume create NAME --size 1Gi",
	columns: []column[replicaRow]{
		{header: "VOLUME", value: func(r replicaRow) string { return r.Volume }},
		{header: "NAME", value: func(r replicaRow) string { return r.Name }},
		{header: "NODE", value: func(r replicaRow) string { return r.HostID }},
		{header: "MODE", value: func(r replicaRow) string { return r.Mode }},
		{header: "RUNNING", value: func(r replicaRow) string { return yesNo(r.Running) }},
		{header: "FAILED-AT", value: func(r replicaRow) string { return r.FailedAt }},
		{header: "ADDRESS", wide: true, value: func(r replicaRow) string { return r.Address }},
		{header: "INSTANCE-MANAGER", wide: true, value: func(r replicaRow) string { return r.InstanceManagerName }},
		{header: "DATA", wide: true, value: func(r replicaRow) string { return r.DataPath }},
	},
}

var nodeKind = kind[nodeRow]{
	name: "node", id: func(n nodeRow) string { return n.Name },
	none: "no nodes; they appear when the managers run",
	columns: []column[nodeRow]{
		{header: "NAME", value: func(n nodeRow) string { return n.Name }},
		{header: "READY", value: func(n nodeRow) string { return conditionText(n.Conditions["Ready"]) }},
		{header: "SCHEDULABLE", value: schedulable},
		{header: "ADDRESS", value: func(n nodeRow) string { return n.Address }},
		{header: "DISKS", right: true, value: func(n nodeRow) string { return strconv.Itoa(len(n.Disks)) }},
		{header: "REPLICAS", right: true, value: func(n nodeRow) string {
			return sum(n, func(d resource.DiskInfo) int64 {
				return int64(len(d.ScheduledReplica))
			}, func(i int64) string { return strconv.FormatInt(i, 10) })
		}},
		{header: "SCHEDULED", right: true, value: func(n nodeRow) string {
			return sum(n, func(d resource.DiskInfo) int64 { return d.StorageScheduled }, size)
		}, number: func(n nodeRow) float64 {
			return total(n, func(d resource.DiskInfo) int64 { return d.StorageScheduled })
		}},
		{header: "AVAILABLE", right: true, value: func(n nodeRow) string {
			return sum(n, func(d resource.DiskInfo) int64 { return d.StorageAvailable }, size)
		}, number: func(n nodeRow) float64 {
			return total(n, func(d resource.DiskInfo) int64 { return d.StorageAvailable })
		}},
		{header: "SIZE", right: true, value: func(n nodeRow) string {
			return sum(n, func(d resource.DiskInfo) int64 { return d.StorageMaximum }, size)
		}, number: func(n nodeRow) float64 { return total(n, func(d resource.DiskInfo) int64 { return d.StorageMaximum }) }},
		{header: "TAGS", wide: true, value: func(n nodeRow) string { return strings.Join(n.Tags, ",") }},
		{header: "ZONE", wide: true, value: func(n nodeRow) string { return n.Zone }},
		{header: "PATHS", wide: true, value: diskPaths},
	},
}

func sum(n nodeRow, of func(resource.DiskInfo) int64, text func(int64) string) string {
	return text(int64(total(n, of)))
}

// total adds up a figure of a node's disks.
func total(n nodeRow, of func(resource.DiskInfo) int64) float64 {
	var t int64
	for _, d := range n.Disks {
		t += of(d)
	}
	return float64(t)
}

func diskPaths(n nodeRow) string {
	var paths []string
	for _, name := range sortedKeys(n.Disks) {
		paths = append(paths, n.Disks[name].Path)
	}
	return strings.Join(paths, ",")
}

// conditionText is "yes", or "no" with the reason.
func conditionText(c resource.Condition) string {
	switch {
	case c.Status == "True":
		return "yes"
	case c.Reason != "":
		return "no (" + c.Reason + ")"
	}
	return "no"
}

func schedulable(n nodeRow) string {
	if !n.AllowScheduling {
		return "no (disabled)"
	}
	return conditionText(n.Conditions["Schedulable"])
}

var settingKind = kind[settingRow]{
	name: "setting", id: func(s settingRow) string { return s.Name },
	none: "no settings",
	columns: []column[settingRow]{
		{header: "NAME", value: func(s settingRow) string { return s.Name }},
		{header: "VALUE", value: func(s settingRow) string { return s.Value }},
		{header: "DEFAULT", wide: true, value: func(s settingRow) string { return s.Definition.Default }},
		{header: "ALLOWED", wide: true, value: allowed},
		{header: "CATEGORY", value: func(s settingRow) string { return s.Definition.Category }},
		{header: "APPLIED", value: func(s settingRow) string { return yesNo(s.Applied) }},
	},
}

// allowed says which values a setting takes.
func allowed(s settingRow) string {
	d := s.Definition
	switch {
	case d.ReadOnly:
		return "read only"
	case len(d.Options) > 0:
		var options []string
		for _, o := range d.Options {
			options = append(options, fmt.Sprint(o))
		}
		return strings.Join(options, ", ")
	case len(d.Range) > 0:
		return bounds(d.ValueType, d.Range)
	case len(d.FloatRange) > 0:
		return bounds(d.ValueType, d.FloatRange)
	}
	return d.ValueType
}

func bounds[N int64 | float64](valueType string, m map[string]N) string {
	text := valueType
	if low, ok := m["minimum"]; ok {
		text += fmt.Sprintf(", at least %v", low)
	}
	if high, ok := m["maximum"]; ok {
		text += fmt.Sprintf(", at most %v", high)
	}
	return text
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
