package metrics

import (
	"net"
	"strconv"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

var (
	volumeStates = []lh.VolumeState{lh.VolumeStateCreating, lh.VolumeStateAttached, lh.VolumeStateDetached,
		lh.VolumeStateAttaching, lh.VolumeStateDetaching, lh.VolumeStateDeleting}
	robustnesses = []lh.VolumeRobustness{lh.VolumeRobustnessUnknown, lh.VolumeRobustnessHealthy,
		lh.VolumeRobustnessDegraded, lh.VolumeRobustnessFaulted}
)

// stateOfVolume is the state shown: an object nobody handled yet is being created.
func stateOfVolume(v *lh.Volume) lh.VolumeState {
	switch {
	case v.DeletionTimestamp != nil:
		return lh.VolumeStateDeleting
	case v.Status.State == lh.VolumeStateNew:
		return lh.VolumeStateCreating
	}
	return v.Status.State
}

// gatherVolumes reports volumes.
func (g *gathering) gatherVolumes() {
	current, readOnly := g.currentEngines()
	for i := range g.volumes.Items {
		v := &g.volumes.Items[i]
		owner := g.owner(v.Status.OwnerID, v.Status.CurrentNodeID)
		k := &v.Status.KubernetesStatus
		g.claims[v.Name] = [2]string{k.PVCName, k.Namespace}
		labels := []string{owner, v.Name, k.PVCName, k.Namespace}
		g.add("longhorn_volume_capacity_bytes", float64(v.Spec.Size), labels...)
		g.add("longhorn_volume_actual_size_bytes", float64(v.Status.ActualSize), labels...)
		g.add("longhorn_volume_last_backup_at", unix(v.Status.LastBackupAt), labels...)
		g.add("longhorn_volume_encrypted", one(v.Spec.Encrypted), labels...)
		oneOf(g.Figures, "longhorn_volume_state", stateOfVolume(v), volumeStates, labels...)
		robust := v.Status.Robustness
		if robust == "" {
			robust = lh.VolumeRobustnessUnknown
		}
		oneOf(g.Figures, "longhorn_volume_robustness", robust, robustnesses, labels...)
		if readOnly[v.Name] {
			g.add("longhorn_volume_file_system_read_only", 1, labels...)
		}
		e := current[v.Name]
		if e == nil || e.Status.CurrentState != lh.InstanceStateRunning || e.Status.IP == "" || e.Status.Port == 0 {
			continue
		}
		if proxy := g.proxies[e.Status.InstanceManagerName]; proxy != "" {
			g.Engines = append(g.Engines, Engine{Volume: v.Name, Name: e.Name, Proxy: proxy, Labels: labels,
				Address: net.JoinHostPort(e.Status.IP, strconv.Itoa(e.Status.Port))})
		}
	}
}

// currentEngines returns the engine that serves each volume, and which volumes have a file system
// that has gone read-only. Of two active engines, in a migration, the one that stands in for nobody
// serves.
func (g *gathering) currentEngines() (current map[string]*lh.Engine, readOnly map[string]bool) {
	current, readOnly = map[string]*lh.Engine{}, map[string]bool{}
	for i := range g.engines.Items {
		e := &g.engines.Items[i]
		name := e.Spec.VolumeName
		if lh.IsConditionTrue(e.Status.Conditions, lh.EngineConditionFilesystemReadOnly) {
			readOnly[name] = true
		}
		if e.Spec.Active && (current[name] == nil || e.Spec.StandInFor == "") {
			current[name] = e
		}
	}
	return current, readOnly
}

// proxyAddresses are the addresses of the proxies of instance managers that run, by name.
func (g *gathering) proxyAddresses() map[string]string {
	out := map[string]string{}
	for i := range g.managers.Items {
		im := &g.managers.Items[i]
		if im.Status.CurrentState == lh.InstanceManagerStateRunning && im.Status.IP != "" && im.Status.ProxyAPIVersion > 0 {
			out[im.Name] = net.JoinHostPort(im.Status.IP, strconv.Itoa(naming.PortProxy))
		}
	}
	return out
}

// gatherSnapshots reports snapshots; the head has no object.
func (g *gathering) gatherSnapshots() {
	for i := range g.snapshots.Items {
		o := &g.snapshots.Items[i]
		g.add("longhorn_snapshot_actual_size_bytes", float64(o.Status.Size), o.Name, o.Spec.Volume,
			strconv.FormatBool(o.Status.UserCreated))
	}
}
