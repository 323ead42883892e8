package engineimage

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/firstseen"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/host/version"
)

const (
	// removeAfter is how long an image nobody uses is kept.
	removeAfter = time.Hour
	// versionRetry is how soon a binary that did not tell its version is asked again.
	versionRetry = 2 * time.Second
)

// Understood says whether this manager can work with an engine binary whose command line has a
// version, and understands those from another one on: whether that range meets the one of the
// engine of this manager's release, which is its default one.
func Understood(cliMin, cli int) bool { return cliMin <= version.CLIAPI && cli >= version.CLIAPIMin }

// Versions is what an engine binary says of itself.
type Versions struct {
	Version                 string `json:"version"`
	GitCommit               string `json:"gitCommit"`
	BuildDate               string `json:"buildDate"`
	CLIAPIVersion           int    `json:"cliAPIVersion"`
	CLIAPIMinVersion        int    `json:"cliAPIMinVersion"`
	ControllerAPIVersion    int    `json:"controllerAPIVersion"`
	ControllerAPIMinVersion int    `json:"controllerAPIMinVersion"`
	DataFormatVersion       int    `json:"dataFormatVersion"`
	DataFormatMinVersion    int    `json:"dataFormatMinVersion"`
}

// seen is what decide knows besides the object.
type seen struct {
	// DaemonSet is nil if absent; Pods are its Pods.
	DaemonSet *appsv1.DaemonSet
	Pods      []corev1.Pod
	// Nodes are the storage nodes, KubeNodes the Kubernetes nodes by name.
	Nodes     []v1beta2.Node
	KubeNodes map[string]*corev1.Node
	// Versions from the binary; nil with VersionsProblem if it could not be asked.
	Versions        *Versions
	VersionsProblem string
	// References is the number of volumes, engines and replicas that use the image.
	References int
	// UnusedSince is when this process has seen first that status.noRefSince is what it is.
	UnusedSince time.Time
	Default     bool
	Settings    podSettings
	// Owner is the node whose manager decides.
	Owner string
}

// decide is the state machine; docs/design/controlplane.md has its table.
func decide(now time.Time, ei *v1beta2.EngineImage, s seen) loop.Decision {
	if ei.DeletionTimestamp != nil {
		return release(ei)
	}
	observe(now, ei, s)
	switch {
	case s.DaemonSet == nil:
		return loop.Decision{Do: loop.Create{Object: daemonSetFor(ei, s.Settings)}}
	case s.DaemonSet.DeletionTimestamp == nil:
		if u := corrected(s.DaemonSet, ei, s.Settings); u != nil {
			return loop.Decision{Do: loop.Update{Object: u}}
		}
	}
	if d, done := unused(now, ei, s); done {
		return d
	}
	if s.VersionsProblem != "" {
		return loop.Decision{After: versionRetry}
	}
	return loop.Decision{}
}

// release lets a deleted object go; the DaemonSet follows its owner.
func release(ei *v1beta2.EngineImage) loop.Decision {
	i := slices.Index(ei.Finalizers, v1beta2.Finalizer)
	if i < 0 {
		return loop.Decision{}
	}
	u := ei.DeepCopy()
	u.Finalizers = slices.Delete(u.Finalizers, i, i+1)
	return loop.Decision{Do: loop.Update{Object: u}}
}

// unused removes an image that nobody has used for a while.
func unused(now time.Time, ei *v1beta2.EngineImage, s seen) (loop.Decision, bool) {
	if s.Default || s.References > 0 {
		return loop.Decision{}, false
	}
	since, err := time.Parse(time.RFC3339, ei.Status.NoRefSince)
	if err != nil {
		return loop.Decision{}, false // written by observe, so never
	}
	if rest := firstseen.Left(now, since, s.UnusedSince, removeAfter); rest > 0 {
		if s.VersionsProblem != "" {
			rest = min(rest, versionRetry)
		}
		return loop.Decision{After: rest}, true
	}
	return loop.Decision{Do: loop.Delete{Object: ei}}, true
}

// observe writes what is seen into the status.
func observe(now time.Time, ei *v1beta2.EngineImage, s seen) {
	st := &ei.Status
	st.OwnerID = s.Owner
	st.RefCount = s.References
	switch {
	case s.References > 0:
		st.NoRefSince = ""
	case st.NoRefSince == "":
		st.NoRefSince = now.UTC().Format(time.RFC3339)
	}
	if v := s.Versions; v != nil {
		st.Version, st.GitCommit, st.BuildDate = v.Version, v.GitCommit, v.BuildDate
		st.CLIAPIVersion, st.CLIAPIMinVersion = v.CLIAPIVersion, v.CLIAPIMinVersion
		st.ControllerAPIVersion, st.ControllerAPIMinVersion = v.ControllerAPIVersion, v.ControllerAPIMinVersion
		st.DataFormatVersion, st.DataFormatMinVersion = v.DataFormatVersion, v.DataFormatMinVersion
		st.Incompatible = !Understood(v.CLIAPIMinVersion, v.CLIAPIVersion)
	}
	st.NodeDeploymentMap = deploymentMap(s)
	missing := missingNodes(s, st.NodeDeploymentMap)
	c := v1beta2.Condition{Type: v1beta2.EngineImageConditionReady, Status: v1beta2.ConditionFalse,
		Reason: v1beta2.EngineImageReasonDaemonSet}
	switch {
	case s.DaemonSet == nil:
		c.Message = "creating DaemonSet " + naming.EngineImageDaemonSetName(ei.Name)
	case len(missing) > 0:
		c.Message = "not yet deployed on " + strings.Join(missing, ", ") + ": DaemonSet " + s.DaemonSet.Name +
			" has no ready Pod there; on " + missing[0] + ": " + whyMissing(s, missing[0])
	case !anyDeployed(st.NodeDeploymentMap):
		c.Message = "not yet deployed on any node"
	case st.Version == "":
		c.Message = "the binary did not tell its version: " + s.VersionsProblem
	case st.Incompatible:
		c.Reason = v1beta2.EngineImageReasonBinary
		c.Message = fmt.Sprintf(
			"incompatible: the binary's command line has version %d (understands %d and later), the engine of this release "+
				"%d to %d; upgrade the volumes that use it to another image with: ankole volume upgrade, or install managers of its release",
			st.CLIAPIVersion, st.CLIAPIMinVersion, version.CLIAPIMin, version.CLIAPI)
	default:
		c.Status, c.Reason = v1beta2.ConditionTrue, ""
	}
	st.State = v1beta2.EngineImageStateDeploying
	if len(missing) == 0 && anyDeployed(st.NodeDeploymentMap) && st.Version != "" {
		st.State = v1beta2.EngineImageStateDeployed
	}
	st.Conditions, _ = v1beta2.SetCondition(st.Conditions, c, now)
}

// deploymentMap tells for every storage node whether its Pod of the DaemonSet is ready.
func deploymentMap(s seen) map[string]bool {
	m := map[string]bool{}
	for i := range s.Nodes {
		m[s.Nodes[i].Name] = false
	}
	for i := range s.Pods {
		if _, known := m[s.Pods[i].Spec.NodeName]; known && condition.PodReady(&s.Pods[i]) {
			m[s.Pods[i].Spec.NodeName] = true
		}
	}
	return m
}

func anyDeployed(m map[string]bool) bool {
	for _, ready := range m {
		if ready {
			return true
		}
	}
	return false
}

// missingNodes lists the ready nodes that should have the image and do not. Nodes that are down are
// not waited for.
func missingNodes(s seen, deployed map[string]bool) []string {
	missing := map[string]bool{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if deployed[n.Name] || n.DeletionTimestamp != nil ||
			!condition.NodeReady(n) {
			continue
		}
		if kube := s.KubeNodes[n.Name]; kube != nil && matches(kube.Labels, s.Settings.nodeSelector) {
			missing[n.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(missing))
}

// whyMissing says why a node has not the image.
func whyMissing(s seen, node string) string {
	for i := range s.Pods {
		switch p := &s.Pods[i]; {
		case p.Spec.NodeName != node:
		case condition.PodProblem(p) != "":
			return "Pod " + p.Name + ", " + condition.PodProblem(p)
		default:
			return "Pod " + p.Name + " is not ready"
		}
	}
	return "no Pod; look at the events of the DaemonSet, and for taints of the node (setting taint-toleration)"
}

func matches(labels, selector map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}
