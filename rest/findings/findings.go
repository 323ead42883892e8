// Package findings says of the objects of the API what is wrong with them and what they wait for,
// with the command to go on with. Servers put it into the objects as waitsFor, so that the web UI
// and command ankole say the same. It asks nobody, and decides nothing but words.
package findings

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"ankole.storage/rest/resource"
)

// Finding is something about an object that a person should know.
type Finding struct {
	// Object is KIND/NAME.
	Object string `json:"object"`
	What   string `json:"what"`
	// Do is the command to go on with; empty if there is nothing to do but wait.
	Do string `json:"do,omitempty"`
}

// VolumeProblems are why a volume is not as it is wanted.
func VolumeProblems(v *resource.Volume) []Finding {
	var out []Finding
	add := func(what, do string) { out = append(out, Finding{"volume/" + v.Name, what, do}) }
	failed := 0
	for _, r := range v.Replicas {
		if r.FailedAt != "" {
			failed++
		}
	}
	switch v.Robustness {
	case "faulted":
		text := "faulted: no replica can be used, of " + strconv.Itoa(len(v.Replicas))
		if c := v.Conditions["Start"]; c.Status == "False" {
			text += "; " + c.Message
		}
		add(text, "ankole volume describe "+v.Name)
	case "degraded":
		text := fmt.Sprintf("degraded: %d of %d replicas are in sync", InSync(v), v.NumberOfReplicas)
		if failed > 0 {
			text += fmt.Sprintf(", %d failed", failed)
		}
		add(text, "ankole volume describe "+v.Name)
	}
	if c, ok := v.Conditions["Scheduled"]; ok && c.Status == "False" {
		add("not all replicas are scheduled: "+c.Message, "ankole disk list")
	}
	if c := v.Conditions["SecretPresent"]; c.Status == "False" {
		add(c.Message, "ankole volume describe "+v.Name)
	}
	if c := v.Conditions["DeviceKept"]; c.Status == "True" {
		add("it cannot leave its node: "+c.Message, "ankole volume describe "+v.Name)
	}
	if c := v.Conditions["BackupDamage"]; c.Status == "True" {
		add(c.Message, "ankole volume accept-backup-damage "+v.Name)
	}
	if c := v.Conditions["NoSpace"]; c.Status == "True" {
		add(c.Message, "ankole disk list")
	}
	for _, bad := range []string{"TooManySnapshots", "BackingImageIncompatible"} {
		if c := v.Conditions[bad]; c.Status == "True" {
			add(ConditionLine(bad, c), "ankole snapshot list "+v.Name)
		}
	}
	if c := v.Conditions["ReplicaFilesLost"]; c.Status == "True" {
		add(c.Message, "ankole volume describe "+v.Name)
	}
	if c := v.Conditions["Eviction"]; c.Status == "False" && c.Message != "" {
		add(ConditionLine("Eviction", c), "ankole disk list")
	}
	for _, r := range v.RebuildStatus {
		if r.Error != "" {
			add("the rebuild of replica "+r.Replica+" has failed: "+r.Error, "ankole event list --for volume/"+v.Name)
		}
	}
	for _, c := range v.Controllers {
		if c.LastExpansionError != "" {
			add("expansion failed: "+c.LastExpansionError, "ankole volume describe "+v.Name)
		}
	}
	if s := v.CloneStatus; s.State == "failed" {
		_, text, _ := CloneText(v)
		add(text, "ankole event list --for volume/"+v.Name)
	}
	return out
}

// VolumeActivity is what is going on with a volume, and so what it waits for.
func VolumeActivity(v *resource.Volume) []Finding {
	var out []Finding
	add := func(format string, args ...any) {
		out = append(out, Finding{Object: "volume/" + v.Name, What: fmt.Sprintf(format, args...)})
	}
	if p, ok := Rebuilding(*v); ok {
		add("a replica is being rebuilt: %d%%", p)
	}
	if _, text, ok := CloneText(v); ok && v.CloneStatus.State != "failed" {
		add("%s: %d%%", text, v.CloneStatus.Progress)
	}
	if percent, ok := purging(v); ok {
		add("removed snapshots are being purged: %d%%", percent)
	}
	for _, r := range v.RestoreStatus {
		if r.IsRestoring {
			add("replica %s is being restored: %d%%", r.Replica, r.Progress)
		}
	}
	for _, name := range []string{"WaitForReplicas", "WaitForExpansion", "WaitForBackingImage", "OfflineRebuilding"} {
		if c := v.Conditions[name]; c.Status == "True" && c.Message != "" {
			add("%s", ConditionLine(name, c))
		}
	}
	if at := runsOn(v); v.State == "attached" && v.DataLocality == "best-effort" && at != "" && !inSyncOn(v, at) {
		add("data locality: no replica on %s, where the volume is attached, is in sync yet; reads go over the network", at)
	}
	if expanding(v) {
		add("being expanded to %s", SizeText(v.Size))
	}
	if v.CurrentImage != "" && v.CurrentImage != v.Image {
		text := "being upgraded to " + v.Image
		if m := v.Conditions["EngineUpgrade"].Message; m != "" {
			text += ": " + m
		}
		add("%s", text)
	}
	switch v.State {
	case "attaching":
		_, text := Describe(v)
		add("%s", text)
	case "detaching", "deleting", "creating":
		add("%s", v.State)
	}
	for _, id := range slices.Sorted(maps.Keys(v.VolumeAttachment.Attachments)) {
		t := v.VolumeAttachment.Attachments[id]
		if !t.Satisfied && v.State != "attaching" && AttachedTo(*v) != t.NodeID {
			add("ticket %s waits for it on node %s%s", ticketName(id, t), t.NodeID, TicketReason(t))
		}
	}
	return out
}

// runsOn is the node of the running engine, empty without one.
func runsOn(v *resource.Volume) string {
	for _, c := range v.Controllers {
		if c.HostID != "" {
			return c.HostID
		}
	}
	return ""
}

func inSyncOn(v *resource.Volume, node string) bool {
	return slices.ContainsFunc(v.Replicas, func(r resource.Replica) bool { return r.HostID == node && r.Mode == "RW" })
}

// expanding reports whether an engine that runs has not got the wanted size yet.
func expanding(v *resource.Volume) bool {
	return slices.ContainsFunc(v.Controllers, func(c resource.Controller) bool {
		return c.IsExpanding || bytesIn(c.Size) > 0 && bytesIn(c.Size) < bytesIn(v.Size)
	})
}

// purging returns the progress of the slowest purge under way.
func purging(v *resource.Volume) (percent int, ok bool) {
	percent = 100
	for _, p := range v.PurgeStatus {
		if p.IsPurging {
			percent, ok = min(percent, p.Progress), true
		}
	}
	return percent, ok
}

// ticketName is a ticket's id; that of people has none.
func ticketName(id string, t resource.Attachment) string {
	if id == "" {
		return t.AttachmentType
	}
	return id
}

// TicketReason is why a ticket is not satisfied, if that is known.
func TicketReason(t resource.Attachment) string {
	for _, c := range t.Conditions {
		if c.Status == "False" && c.Message != "" {
			return ": " + c.Message
		}
	}
	return ""
}

// ConditionLine is a condition in a line: what it is, why.
func ConditionLine(name string, c resource.Condition) string {
	return name + ": " + cmp.Or(c.Message, c.Reason, c.Status)
}

// NodeProblems are why a node or one of its disks takes no part. What a person has turned off is
// none, nor is what the host lacks for a feature that nobody uses; encrypted says whether encrypted
// volumes are.
func NodeProblems(n *resource.Node, encrypted bool) []Finding {
	var out []Finding
	add := func(what, do string) { out = append(out, Finding{"node/" + n.Name, what, do}) }
	if c := n.Conditions["Ready"]; c.Status != "True" {
		add("not ready: "+cmp.Or(c.Message, c.Reason, "nothing is known of it"), "kubectl describe node "+n.Name)
		return out // What follows from that needs no lines of its own.
	}
	for _, name := range slices.Sorted(maps.Keys(n.Conditions)) {
		if c := n.Conditions[name]; name != "Ready" && name != "Schedulable" && c.Status == "False" &&
			needed(name, c, encrypted) {
			add(ConditionLine(name, c), "ankole node describe "+n.Name)
		}
	}
	if c := n.Conditions["Schedulable"]; n.AllowScheduling && c.Status == "False" {
		add("takes no replicas: "+cmp.Or(c.Message, c.Reason), "ankole node describe "+n.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(n.Disks)) {
		for _, text := range diskProblems(n.Disks[name]) {
			add("disk "+name+" "+text, "ankole node describe "+n.Name)
		}
	}
	return out
}

// NodeLimits are what a host lacks for what nobody uses yet: no problem, and good to know before.
func NodeLimits(n *resource.Node, encrypted bool) []Finding {
	var out []Finding
	for _, name := range slices.Sorted(maps.Keys(n.Conditions)) {
		if c := n.Conditions[name]; c.Status == "False" && !needed(name, c, encrypted) {
			out = append(out, Finding{Object: "node/" + n.Name, What: ConditionLine(name, c)})
		}
	}
	return out
}

// needed says whether the cluster uses what a host lacks by a condition: backup targets
// nfs:// alone need the client of NFS, and say so themselves; encrypted volumes alone need the
// module that is not loaded.
func needed(name string, c resource.Condition, encrypted bool) bool {
	switch name {
	case "NFSClientInstalled":
		return false
	case "KernelModulesLoaded":
		return encrypted || c.Reason != "KernelModulesNotLoaded"
	}
	return true
}

func diskProblems(d resource.DiskInfo) []string {
	var out []string
	if c := d.Conditions["Ready"]; c.Status == "False" {
		out = append(out, "is not ready: "+cmp.Or(c.Message, c.Reason))
	}
	if c := d.Conditions["Error"]; c.Status == "True" {
		out = append(out, "has an error: "+cmp.Or(c.Message, c.Reason))
	}
	if c := d.Conditions["Schedulable"]; d.AllowScheduling && c.Status == "False" && len(out) == 0 {
		out = append(out, "takes no replicas: "+cmp.Or(c.Message, c.Reason))
	}
	for _, device := range slices.Sorted(maps.Keys(d.HealthData)) {
		if verdict(d.HealthData[device]) == "FAILED" {
			out = append(out, "stands on device "+device+", which says of itself that it fails (SMART)")
		}
	}
	return out
}

// verdict is what a device says of itself: a server has it as the object has it, a client as JSON.
func verdict(device any) string {
	text, err := json.Marshal(device)
	if err != nil {
		return ""
	}
	var said struct{ HealthStatus string }
	_ = json.Unmarshal(text, &said) // what is no object says nothing
	return said.HealthStatus
}

// NodeActivity is what is going on on a node.
func NodeActivity(n *resource.Node) []Finding {
	var out []Finding
	add := func(where string, left int) {
		out = append(out, Finding{Object: "node/" + n.Name, What: where + "being evicted: " + replicas(left) + " left"})
	}
	if n.EvictionRequested || n.AutoEvicting {
		add("", ReplicasOn(n))
	}
	for _, name := range slices.Sorted(maps.Keys(n.Disks)) {
		if d := n.Disks[name]; d.EvictionRequested {
			add("disk "+name+" ", len(d.ScheduledReplica))
		}
	}
	return out
}

// ReplicasOn counts the replicas that are scheduled to the disks of a node.
func ReplicasOn(n *resource.Node) int {
	total := 0
	for _, d := range n.Disks {
		total += len(d.ScheduledReplica)
	}
	return total
}

// ManagerProblems are why an instance manager serves nothing, or waits.
func ManagerProblems(m *resource.InstanceManager) []Finding {
	var out []Finding
	object, do := "instance-manager/"+m.Name, "ankole instance-manager describe "+m.Name
	if m.CurrentState != "running" {
		out = append(out, Finding{object, fmt.Sprintf("in state %s, on node %s", orUnknown(m.CurrentState),
			m.NodeID), do})
	}
	for _, name := range slices.Sorted(maps.Keys(m.Conditions)) {
		// DrainAllowed says what a drain would meet; it is no fault.
		if c := m.Conditions[name]; c.Status == "False" && name != "DrainAllowed" {
			out = append(out, Finding{object, ConditionLine(name, c), do})
		}
	}
	return out
}

// Incompatible is what is wrong with an image whose command line has other versions than the
// default one's.
const Incompatible = "not compatible with this release"

// ImageProblems are why an engine image cannot be used everywhere.
func ImageProblems(i *resource.EngineImage) []Finding {
	object, do := "engine-image/"+i.Name, "ankole engine-image describe "+i.Name
	var out []Finding
	if i.Incompatible {
		out = append(out, Finding{object, Incompatible, do})
	}
	if i.State != "deployed" {
		out = append(out, Finding{object, fmt.Sprintf("in state %s: on %s nodes", orUnknown(i.State),
			DeployedNodes(*i)), do})
	}
	return out
}

// SettingProblems are settings whose value has no effect yet.
func SettingProblems(all []resource.Setting) []Finding {
	var out []Finding
	for _, s := range all {
		if !s.Applied && s.Definition.ValueType != "deprecated" {
			out = append(out, Finding{"setting/" + s.Name, "its value is not applied yet: " + cmp.Or(s.Value, "-"),
				"ankole setting get " + s.Name})
		}
	}
	return out
}

// Waits joins what an object waits for with what is wrong with it, each once.
func Waits(groups ...[]Finding) []string {
	out := []string{} // in JSON a list, though nothing is in it
	for _, f := range slices.Concat(groups...) {
		text := f.What
		if f.Do != "" && !strings.Contains(f.Do, " describe ") {
			text += "; see: " + f.Do
		}
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// Volume is all that a volume waits for.
func Volume(v *resource.Volume) []string {
	out := Waits(VolumeProblems(v), VolumeActivity(v))
	if v.Robustness == "faulted" {
		out = append(out, "a copy that can be used: ankole volume salvage "+v.Name+
			" tries failed ones again; ankole volume accept-data-loss "+v.Name+" shows what each holds")
	}
	if v.NotReadyMessage != "" && len(out) == 0 && v.State != "detached" && !v.Standby {
		out = append(out, v.NotReadyMessage)
	}
	return out
}

// Node is all that a node waits for; encrypted says whether there are encrypted volumes.
func Node(n *resource.Node, encrypted bool) []string {
	return Waits(NodeProblems(n, encrypted), NodeActivity(n))
}

// InstanceManager is all that an instance manager waits for.
func InstanceManager(m *resource.InstanceManager) []string { return Waits(ManagerProblems(m)) }

// EngineImage is what an engine image waits for, but the volumes that are being upgraded.
func EngineImage(i *resource.EngineImage) []string {
	problems := ImageProblems(i)
	for _, c := range i.Conditions {
		if c.Status == "False" {
			problems = append(problems, Finding{What: ConditionLine(c.ConditionType, c)})
		}
	}
	return Waits(problems)
}

func orUnknown(s string) string { return cmp.Or(s, "unknown") }

func replicas(n int) string {
	if n == 1 {
		return "1 replica"
	}
	return strconv.Itoa(n) + " replicas"
}
