package instancemanager

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/heard"
)

// followRetry is how soon a running Pod is looked at again that could not be followed, whose proxy
// does not answer (its stream usually wakes us earlier), or which an engine or replica still claims
// (its change wakes nobody).
const followRetry = 5 * time.Second

// seen is what decide knows besides the object.
type seen struct {
	// Node is the storage node, KubeNode the Kubernetes node; nil if gone.
	Node     *v1beta2.Node
	KubeNode *corev1.Node
	// Pod and PDB have the object's name; nil if absent.
	Pod *corev1.Pod
	PDB *policyv1.PodDisruptionBudget
	// Processes are those of the Pod as they were last reported; nil as long as this leader has not
	// listed them.
	Processes *heard.Processes
	// UnconfirmedSince is when the stream from the Pod was lost, or first asked for; zero while it
	// stands, so that Processes is what runs now.
	UnconfirmedSince time.Time
	// Assigned names an engine or replica whose process is in the Pod according to its object; empty
	// if there is none. It is looked for only when the Pod might be removed.
	Assigned string
	// Empty: the closed Pod has answered that it has no process and will not get one.
	Empty bool
	// Orphaned are the processes in the Pod that no object has, Orphan one of them that is not
	// reported yet.
	Orphaned map[string]bool
	Orphan   *v1beta2.Orphan
	// ProxyDown: the Pod has a proxy that does not answer.
	ProxyDown bool
	// CertificateProblem: the secret for the connections to the Pod is there and cannot be used.
	CertificateProblem error
	// DefaultImage is the image new instances use.
	DefaultImage string
	Settings     PodSettings
	// Plaintext is read while there is no Pod.
	Plaintext Plaintext
	// Refused is what the API server says against the next Pod, which was tried and not made; empty
	// if nothing.
	Refused string
	// StartNotBefore is the end of the back-off after Pods that ended.
	StartNotBefore time.Time
	// DrainPolicy is the value of node-drain-policy; Autoscaler: the cluster autoscaler may remove
	// idle nodes.
	DrainPolicy string
	Autoscaler  bool
	// Role is the role of AWS that the default backup target's Secret names; "" for none.
	Role string
	// Drained: the node is being emptied and, by the cache, the drain policy lets this instance
	// manager go. Its budget is released if live objects say so too.
	Drained bool
	// Held is what a drain of a cordoned node waits for; its volume is "" if for nothing.
	Held hold
	// Owner is the node whose manager decides (status.ownerID while the instance manager's own node
	// is down).
	Owner string
}

func (s seen) nodeDown() bool { return s.KubeNode == nil || condition.NodeDown(s.Node) }

func (s seen) cordoned() bool { return s.KubeNode != nil && s.KubeNode.Spec.Unschedulable }

// removable tells whether there is a reason to remove the Pod once nothing runs in it.
func (s seen) removable(im *v1beta2.InstanceManager) bool {
	return legacy(im) || im.Spec.Image != s.DefaultImage ||
		s.Pod != nil && len(drift(s.Pod, s.Settings, s.cpu(im.Spec.Type))) > 0
}

// decide is the state machine; docs/design/controlplane.md has its table.
func decide(now time.Time, im *v1beta2.InstanceManager, s seen) loop.Decision {
	if im.DeletionTimestamp != nil {
		return loop.Decision{} // no finalizer: the Pod follows its owner
	}
	observe(now, im, s)
	if s.nodeDown() {
		return loop.Decision{}
	}
	if s.Orphan != nil {
		return report(im, s.Orphan)
	}
	if legacy(im) {
		return decideLegacy(im, s)
	}
	if im.Spec.Image != s.DefaultImage && !mayWork(s) {
		return remove(im, s, im)
	}
	d, done := decidePod(now, im, s)
	if !done {
		d = decideBudget(im, s)
	}
	if d.Do == nil && s.Refused != "" && d.After == 0 {
		d.After = refusedRetry
	}
	if d.Do == nil && s.mayRun() &&
		(s.Processes == nil || !s.UnconfirmedSince.IsZero() || s.ProxyDown || s.Assigned != "") {
		d.After = followRetry
	}
	return d
}

// observe writes what is seen into the status.
func observe(now time.Time, im *v1beta2.InstanceManager, s seen) {
	st := &im.Status
	condition := func(kind string, status v1beta2.ConditionStatus, reason, message string) {
		st.Conditions, _ = v1beta2.SetCondition(st.Conditions,
			v1beta2.Condition{Type: kind, Status: status, Reason: reason, Message: message}, now)
	}
	st.OwnerID = im.Spec.NodeID
	if s.nodeDown() {
		st.OwnerID = s.Owner
		condition(v1beta2.InstanceManagerConditionNodeReady, v1beta2.ConditionFalse,
			v1beta2.InstanceManagerReasonNodeDown, "node "+im.Spec.NodeID+" does not answer or is gone")
		if st.CurrentState != v1beta2.InstanceManagerStateError {
			st.CurrentState = v1beta2.InstanceManagerStateUnknown
		}
		return
	}
	if s.cordoned() {
		condition(v1beta2.InstanceManagerConditionNodeReady, v1beta2.ConditionFalse,
			v1beta2.InstanceManagerReasonNodeUnschedulable, "Kubernetes node "+im.Spec.NodeID+" is cordoned")
	} else {
		condition(v1beta2.InstanceManagerConditionNodeReady, v1beta2.ConditionTrue, "", "")
	}
	observeDrain(condition, st, s)
	observeCertificates(condition, st, s)
	p := stateOf(s, st)
	st.CurrentState = p.state
	noteClosed(im, s)
	observeConfirmation(condition, now, im, s)
	observeProcesses(condition, im, s)
	message := podMessage(s.Pod, st)
	if s.Pod == nil {
		message = s.Refused
	}
	condition(v1beta2.InstanceManagerConditionPodReady, p.ready, p.reason, message)
	if p.state != v1beta2.InstanceManagerStateRunning {
		return
	}
	cpu := s.cpu(im.Spec.Type)
	if waiting := drift(s.Pod, s.Settings, cpu); len(waiting) > 0 {
		for i, name := range waiting {
			waiting[i] = notSynced(name, s.Pod, cpu)
		}
		why := "waiting for the last instance to stop before applying: "
		if s.Refused != "" {
			why = "the next Pod is refused, and this one is left alone (" + s.Refused + "); it is to apply: "
		}
		condition(v1beta2.InstanceManagerConditionSettingSynced, v1beta2.ConditionFalse,
			v1beta2.InstanceManagerReasonSettingNotSynced, why+strings.Join(waiting, ", "))
	} else {
		condition(v1beta2.InstanceManagerConditionSettingSynced, v1beta2.ConditionTrue, "", "")
	}
}

// observeDrain says of a cordoned node whether a drain may go on, or what it waits for.
func observeDrain(condition func(kind string, status v1beta2.ConditionStatus, reason, message string),
	st *v1beta2.InstanceManagerStatus, s seen) {
	const kind = v1beta2.InstanceManagerConditionDrainAllowed
	switch {
	case !s.cordoned():
		st.Conditions = slices.DeleteFunc(slices.Clone(st.Conditions),
			func(c v1beta2.Condition) bool { return c.Type == kind })
	case s.Held.volume != "":
		condition(kind, v1beta2.ConditionFalse, s.Held.reason, s.Held.message)
	case s.Drained:
		condition(kind, v1beta2.ConditionTrue, "", "")
	}
}

// observeProcesses brings addresses and processes up to date. In state unknown those that are not
// observed stay as they were known last. Elsewhere outside of running there are none, unless they
// are observed.
func observeProcesses(condition func(kind string, status v1beta2.ConditionStatus, reason, message string),
	im *v1beta2.InstanceManager, s seen) {
	st := &im.Status
	switch st.CurrentState {
	case v1beta2.InstanceManagerStateRunning:
		st.IP, st.StorageIP, st.StorageNetwork = s.Pod.Status.PodIP, storageIP(s.Pod, st), storageNetwork(s.Pod)
	case v1beta2.InstanceManagerStateUnknown:
	default:
		st.IP, st.StorageIP, st.StorageNetwork = "", "", ""
		st.InstanceEngines, st.InstanceReplicas, st.Instances = nil, nil, nil
	}
	if s.Processes == nil || !s.mayRun() {
		return
	}
	st.InstanceEngines, st.InstanceReplicas = s.Processes.Engines, s.Processes.Replicas
	if legacy(im) {
		legacyInstances(st, s.Processes)
	}
	st.APIVersion, st.APIMinVersion = s.Processes.APIVersion, s.Processes.APIMinVersion
	st.ProxyAPIVersion, st.ProxyAPIMinVersion = s.Processes.ProxyAPIVersion, s.Processes.ProxyAPIMinVersion
	observeVersions(condition, s.Processes)
}

// observeConfirmation tells of processes that are not confirmed. A stream that is back soon is no
// news, and an instance manager whose processes were confirmed all the time has no such condition.
func observeConfirmation(condition func(kind string, status v1beta2.ConditionStatus, reason, message string),
	now time.Time, im *v1beta2.InstanceManager, s seen) {
	const kind = v1beta2.InstanceManagerConditionProcessesConfirmed
	st := &im.Status
	told := slices.ContainsFunc(st.Conditions, func(c v1beta2.Condition) bool { return c.Type == kind })
	expected := st.CurrentState == v1beta2.InstanceManagerStateRunning ||
		st.CurrentState == v1beta2.InstanceManagerStateUnknown
	switch {
	case expected && !s.UnconfirmedSince.IsZero() && now.Sub(s.UnconfirmedSince) >= followRetry:
		condition(kind, v1beta2.ConditionFalse, v1beta2.InstanceManagerReasonNotAnswering,
			"the instance manager does not answer; its processes are those that it reported last, and I/O goes on; see that "+
				notAnswering(im, s.Pod))
	case told && (!expected || s.Processes != nil && s.UnconfirmedSince.IsZero()):
		condition(kind, v1beta2.ConditionTrue, "", "")
	}
}

// notAnswering says where to look when an instance manager does not answer.
func notAnswering(im *v1beta2.InstanceManager, pod *corev1.Pod) string {
	at := ""
	if pod != nil && pod.Status.PodIP != "" {
		at = " at " + pod.Status.PodIP
	}
	return fmt.Sprintf("the managers reach ports %d to %d of its Pod%s (network policies, routes), and its log: kubectl -n %s "+
		"logs %s", naming.PortProcessManager, naming.PortInstanceService, at, im.Namespace, im.Name)
}

// observeCertificates tells of a secret that cannot be used: connections are then plaintext, or go
// on with what it was before.
func observeCertificates(condition func(kind string, status v1beta2.ConditionStatus, reason, message string),
	st *v1beta2.InstanceManagerStatus, s seen) {
	const kind = v1beta2.InstanceManagerConditionCertificateUsable
	told := slices.ContainsFunc(st.Conditions, func(c v1beta2.Condition) bool { return c.Type == kind })
	switch {
	case s.CertificateProblem != nil:
		condition(kind, v1beta2.ConditionFalse, v1beta2.InstanceManagerReasonBadSecret,
			"Secret "+naming.SecretGRPCTLS+" cannot be used; correct it or delete it: "+s.CertificateProblem.Error())
	case s.Plaintext.Wait:
		condition(kind, v1beta2.ConditionFalse, v1beta2.InstanceManagerReasonNoCertificate,
			"there is no Secret "+naming.SecretGRPCTLS+" yet, without which nobody is answered: the Pod is made when there is; the "+
				"leading manager makes the Secret, and its log says what is in the way")
	case told:
		condition(kind, v1beta2.ConditionTrue, "", "")
	}
}

// podMessage says in words why a Pod does not run.
func podMessage(pod *corev1.Pod, st *v1beta2.InstanceManagerStatus) string {
	if pod == nil {
		return ""
	}
	if leaving(pod) {
		return "the Pod is being deleted: what runs in it goes on until its container ends, and nothing is started in it"
	}
	if podReady(pod) {
		if storageIP(pod, st) == "" {
			return "the Pod has no address on the storage network (interface " + naming.StorageNetworkInterface +
				"); does the network of setting storage-network exist?"
		}
		return ""
	}
	return condition.PodProblem(pod)
}

// decidePod keeps the Pod: one that ended, or differs from the settings while idle, goes; a missing
// one comes.
func decidePod(now time.Time, im *v1beta2.InstanceManager, s seen) (loop.Decision, bool) {
	switch {
	case s.Pod != nil && s.Pod.DeletionTimestamp != nil:
		return loop.Decision{}, true
	case s.Pod != nil && noRoom(s.Pod) && now.Before(s.StartNotBefore):
		return loop.Decision{After: s.StartNotBefore.Sub(now)}, true // it holds nothing and says why
	case s.Pod != nil && ended(s.Pod):
		return loop.Decision{Do: loop.Delete{Object: s.Pod}}, true
	case s.Pod != nil:
		closed := im.Status.ClosedPod != "" // there is no way back, see remove
		stale := len(drift(s.Pod, s.Settings, s.cpu(im.Spec.Type))) > 0 && !s.cordoned()
		if idle(s) && (closed || stale && s.Refused == "") {
			return remove(im, s, s.Pod), true
		}
		if u := annotated(s.Pod, s); u != nil {
			return loop.Decision{Do: loop.Update{Object: u}}, true
		}
		return loop.Decision{}, im.Status.CurrentState != v1beta2.InstanceManagerStateRunning
	case s.cordoned():
		return loop.Decision{}, true
	case s.Plaintext.Wait:
		return loop.Decision{After: certificateRetry}, true
	case now.Before(s.StartNotBefore):
		return loop.Decision{After: s.StartNotBefore.Sub(now)}, true
	case s.Refused != "":
		return loop.Decision{}, true
	}
	return loop.Decision{
		Do:            loop.Create{Object: nextPod(im, s)},
		FailureReason: "FailedCreating",
	}, true
}

// nextPod is the Pod to make.
func nextPod(im *v1beta2.InstanceManager, s seen) *corev1.Pod {
	pod := podFor(im, s.Settings, s.cpu(im.Spec.Type).millis)
	s.Plaintext.Apply(pod)
	if u := annotated(pod, s); u != nil {
		pod = u
	}
	return pod
}

// mayWork tells whether a process runs in the Pod, or may run unknown to us.
func mayWork(s seen) bool { return s.mayRun() && !idle(s) }

// idle tells whether the Pod is known to hold no process that runs: it has listed its processes,
// has told of every change since, and no object claims to have one there. A status, an address that
// is missing or a Pod that is not ready never says so.
func idle(s seen) bool {
	return s.Processes != nil && s.UnconfirmedSince.IsZero() && !s.Processes.Busy() && s.Assigned == ""
}

// decideBudget keeps a disruption budget beside a running Pod, so that a drain waits for its
// instances, and takes it away when the drain policy is satisfied.
func decideBudget(im *v1beta2.InstanceManager, s seen) loop.Decision {
	switch {
	case s.Drained && s.PDB != nil:
		return loop.Decision{
			Do:    loop.Reserving{Change: loop.Delete{Object: s.PDB}},
			After: budgetRetry,
		}
	case !s.Drained && s.PDB == nil:
		return loop.Decision{Do: loop.Create{Object: budgetFor(im)}}
	}
	return loop.Decision{}
}
