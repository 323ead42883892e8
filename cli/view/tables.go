// Package view is how the command shows the objects of the API: the columns of their tables, their
// conditions, and what package findings says of them.
package view

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"ankole.storage/cli/output"
	"ankole.storage/rest/findings"
	"ankole.storage/rest/resource"
)

// The rows of the tables. A replica is shown with the volume it belongs to.
type (
	// VolumeRow is a volume.
	VolumeRow = resource.Volume
	// NodeRow is a node.
	NodeRow = resource.Node
	// SettingRow is a setting.
	SettingRow = resource.Setting
	// ReplicaRow is a replica.
	ReplicaRow struct {
		Volume string `json:"volume"`
		resource.Replica
	}
)

// VolumeKind is how volumes are shown; now is what ages are counted to.
func VolumeKind(now func() time.Time) output.Kind[VolumeRow] {
	return output.Kind[VolumeRow]{
		Name: "volume", Id: func(v VolumeRow) string { return v.Name },
		None: "no volumes; create one with: ankole volume create NAME --size 1Gi",
		Columns: []output.Column[VolumeRow]{
			{Header: "NAME", Value: func(v VolumeRow) string { return v.Name }},
			{Header: "SIZE", Right: true, Value: func(v VolumeRow) string { return output.SizeText(v.Size) },
				Number: func(v VolumeRow) float64 { return output.BytesIn(v.Size) }},
			{Header: "STATE", Value: func(v VolumeRow) string { return v.State }},
			{Header: "ROBUSTNESS", Value: func(v VolumeRow) string { return v.Robustness }},
			{Header: "REPLICAS", Value: ReplicasText},
			{Header: "NODE", Value: findings.AttachedTo},
			{Header: "ENDPOINT", Value: Endpoint},
			{Header: "AGE", Value: func(v VolumeRow) string { return output.Age(v.Created, now()) },
				Number: func(v VolumeRow) float64 { return output.AgeSeconds(v.Created, now()) }},
			{Header: "USED", Wide: true, Right: true, Value: UsedText, Number: usedBytes},
			{Header: "LOCALITY", Wide: true, Value: func(v VolumeRow) string { return v.DataLocality }},
			{Header: "ACCESS", Wide: true, Value: func(v VolumeRow) string { return v.AccessMode }},
			{Header: "IMAGE", Wide: true, Value: func(v VolumeRow) string { return v.CurrentImage }},
			{Header: "NOTE", Wide: true, Value: findings.Note},
		},
	}
}

// ReplicasText counts the replicas in sync of an attached volume, or those placed of another, out
// of those wanted.
func ReplicasText(v VolumeRow) string {
	have := 0
	for _, r := range v.Replicas {
		if v.State == "attached" && r.Mode == "RW" || v.State != "attached" && r.HostID != "" && r.FailedAt == "" {
			have++
		}
	}
	text := fmt.Sprintf("%d/%d", have, v.NumberOfReplicas)
	if p, ok := findings.Rebuilding(v); ok {
		text += fmt.Sprintf(" (rebuild %d%%)", p)
	}
	return text
}

// Endpoint is where the volume's users find it; empty while it is not attached.
func Endpoint(v VolumeRow) string {
	for _, c := range v.Controllers {
		if c.Endpoint != "" {
			return c.Endpoint
		}
	}
	return ""
}

// UsedText is what the volume takes on each replica; empty if no engine has told.
func UsedText(v VolumeRow) string {
	for _, c := range v.Controllers {
		return output.SizeText(c.ActualSize)
	}
	return ""
}

func usedBytes(v VolumeRow) float64 {
	for _, c := range v.Controllers {
		return output.BytesIn(c.ActualSize)
	}
	return 0
}

// ReplicaKind is how replicas are shown.
var ReplicaKind = output.Kind[ReplicaRow]{
	Name: "replica", Id: func(r ReplicaRow) string { return r.Name },
	None: "no replicas; create a volume with: ankole volume create NAME --size 1Gi",
	Columns: []output.Column[ReplicaRow]{
		{Header: "VOLUME", Value: func(r ReplicaRow) string { return r.Volume }},
		{Header: "NAME", Value: func(r ReplicaRow) string { return r.Name }},
		{Header: "NODE", Value: func(r ReplicaRow) string { return r.HostID }},
		{Header: "MODE", Value: func(r ReplicaRow) string { return r.Mode }},
		{Header: "RUNNING", Value: func(r ReplicaRow) string { return output.YesNo(r.Running) }},
		{Header: "FAILED-AT", Value: func(r ReplicaRow) string { return r.FailedAt }},
		{Header: "ADDRESS", Wide: true, Value: func(r ReplicaRow) string { return r.Address }},
		{Header: "INSTANCE-MANAGER", Wide: true, Value: func(r ReplicaRow) string { return r.InstanceManagerName }},
		{Header: "DATA", Wide: true, Value: func(r ReplicaRow) string { return r.DataPath }},
	},
}

// NodeKind is how nodes are shown.
var NodeKind = output.Kind[NodeRow]{
	Name: "node", Id: func(n NodeRow) string { return n.Name },
	None: "no nodes; they appear when the managers run",
	Columns: []output.Column[NodeRow]{
		{Header: "NAME", Value: func(n NodeRow) string { return n.Name }},
		{Header: "READY", Value: func(n NodeRow) string { return ConditionText(n.Conditions["Ready"]) }},
		{Header: "SCHEDULABLE", Value: Schedulable},
		{Header: "ADDRESS", Value: func(n NodeRow) string { return n.Address }},
		{Header: "DISKS", Right: true, Value: func(n NodeRow) string { return strconv.Itoa(len(n.Disks)) }},
		{Header: "REPLICAS", Right: true, Value: func(n NodeRow) string {
			return sum(n, func(d resource.DiskInfo) int64 {
				return int64(len(d.ScheduledReplica))
			}, func(i int64) string { return strconv.FormatInt(i, 10) })
		}},
		{Header: "SCHEDULED", Right: true, Value: func(n NodeRow) string {
			return sum(n, func(d resource.DiskInfo) int64 { return d.StorageScheduled }, output.Size)
		}, Number: func(n NodeRow) float64 {
			return total(n, func(d resource.DiskInfo) int64 { return d.StorageScheduled })
		}},
		{Header: "AVAILABLE", Right: true, Value: func(n NodeRow) string {
			return sum(n, func(d resource.DiskInfo) int64 { return d.StorageAvailable }, output.Size)
		}, Number: func(n NodeRow) float64 {
			return total(n, func(d resource.DiskInfo) int64 { return d.StorageAvailable })
		}},
		{Header: "SIZE", Right: true, Value: func(n NodeRow) string {
			return sum(n, func(d resource.DiskInfo) int64 { return d.StorageMaximum }, output.Size)
		}, Number: func(n NodeRow) float64 { return total(n, func(d resource.DiskInfo) int64 { return d.StorageMaximum }) }},
		{Header: "TAGS", Wide: true, Value: func(n NodeRow) string { return strings.Join(n.Tags, ",") }},
		{Header: "ZONE", Wide: true, Value: func(n NodeRow) string { return n.Zone }},
		{Header: "PATHS", Wide: true, Value: diskPaths},
	},
}

func sum(n NodeRow, of func(resource.DiskInfo) int64, text func(int64) string) string {
	return text(int64(total(n, of)))
}

// total adds up a figure of a node's disks.
func total(n NodeRow, of func(resource.DiskInfo) int64) float64 {
	var t int64
	for _, d := range n.Disks {
		t += of(d)
	}
	return float64(t)
}

func diskPaths(n NodeRow) string {
	var paths []string
	for _, name := range output.SortedKeys(n.Disks) {
		paths = append(paths, n.Disks[name].Path)
	}
	return strings.Join(paths, ",")
}

// ConditionText is "yes", or "no" with the reason.
func ConditionText(c resource.Condition) string {
	switch {
	case c.Status == "True":
		return "yes"
	case c.Reason != "":
		return "no (" + c.Reason + ")"
	}
	return "no"
}

// Schedulable says whether a node takes replicas, and why not.
func Schedulable(n NodeRow) string {
	if !n.AllowScheduling {
		return "no (disabled)"
	}
	return ConditionText(n.Conditions["Schedulable"])
}

// SettingKind is how settings are shown.
var SettingKind = output.Kind[SettingRow]{
	Name: "setting", Id: func(s SettingRow) string { return s.Name },
	None: "no settings",
	Columns: []output.Column[SettingRow]{
		{Header: "NAME", Value: func(s SettingRow) string { return s.Name }},
		{Header: "VALUE", Value: func(s SettingRow) string { return s.Value }},
		{Header: "DEFAULT", Wide: true, Value: func(s SettingRow) string { return s.Definition.Default }},
		{Header: "ALLOWED", Wide: true, Value: allowed},
		{Header: "CATEGORY", Value: func(s SettingRow) string { return s.Definition.Category }},
		{Header: "APPLIED", Value: func(s SettingRow) string { return output.YesNo(s.Applied) }},
	},
}

// allowed says which values a setting takes.
func allowed(s SettingRow) string {
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

// WatchLine is the state of a volume in one line.
func WatchLine(v resource.Volume) string {
	text := fmt.Sprintf("%-9s  %-8s  replicas %s", v.State, v.Robustness, ReplicasText(v))
	if at := findings.AttachedTo(v); at != "" {
		text += "  on " + at
	}
	if e := Endpoint(v); e != "" {
		text += "  " + e
	}
	if n := findings.Note(v); n != "" {
		text += "  (" + output.OneLine(n) + ")"
	}
	return text
}
