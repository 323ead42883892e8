package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
)

const (
	// dumpWait bounds the look at objects of a failed test: its cluster may not answer any more.
	dumpWait = 20 * time.Second
	// dumpEvents and dumpTail are how many events or lines, and bytes of each log, a failed test
	// shows.
	dumpEvents, dumpTail = 80, 2000
	// dumpLine bounds a line of a log.
	dumpLine = 600
)

// dump shows what tells why a test has failed: the objects of volumes, events, and the ends of the
// logs of managers and of the volumes' processes.
func (c *cluster) dump() {
	ctx, cancel := context.WithTimeout(context.Background(), dumpWait)
	defer cancel()
	names := c.dumpVolumes(ctx)
	c.dumpInstanceManagers(ctx)
	c.dumpEvents(ctx, names)
	for _, n := range c.Nodes {
		for _, of := range []string{"controller", "manager"} {
			managers := filepath.Join(filepath.Dir(n.Root), "logs/*_longhorn-"+of+"-*/*.log")
			c.dumpLogs(n.Name, managers, nil)
			c.dumpLines(n.Name, managers, names)
		}
		c.dumpLogs(n.Name, filepath.Join(n.Root, "var/log/instances/*.log"), names)
	}
}

// dumpLines shows the last lines of logs that name a volume, an engine or a replica of it.
func (c *cluster) dumpLines(node, pattern string, volumes []string) {
	logs, _ := filepath.Glob(pattern) // the pattern is well-formed
	for _, l := range logs {
		p, err := os.ReadFile(l)
		if err != nil {
			continue
		}
		var of []string
		for line := range strings.Lines(string(p)) {
			if slices.ContainsFunc(volumes, func(v string) bool { return strings.Contains(line, v) }) {
				of = append(of, line[:min(len(line), dumpLine)])
			}
		}
		c.t.Logf("--- %s %s, of volumes that are there ---\n%s", node, filepath.Base(l),
			strings.Join(of[max(0, len(of)-dumpEvents):], "\n"))
	}
}

// dumpVolumes returns the names of all volumes; nil if they cannot be had.
func (c *cluster) dumpVolumes(ctx context.Context) (names []string) {
	var volumes longhorn.VolumeList
	var engines longhorn.EngineList
	var replicas longhorn.ReplicaList
	for _, l := range []client.ObjectList{&volumes, &engines, &replicas} {
		if err := c.kube.List(ctx, l, client.InNamespace(namespace)); err != nil {
			c.t.Logf("objects: %v", err)
			return nil
		}
	}
	var out strings.Builder
	for _, v := range volumes.Items {
		names = append(names, v.Name)
		fmt.Fprintf(&out, "volume %s: node %q, %s, %s, image %s, current %s\n", v.Name, v.Spec.NodeID, v.Status.State,
			v.Status.Robustness, v.Spec.Image, v.Status.CurrentImage)
		for _, k := range v.Status.Conditions {
			if k.Message != "" {
				fmt.Fprintf(&out, "  %s %s %s: %s\n", k.Type, k.Status, k.Reason, k.Message)
			}
		}
		for _, e := range engines.Items {
			if e.Spec.VolumeName == v.Name {
				fmt.Fprintf(&out, "  engine %s: %s modes %v\n", e.Name, instanceText(e.Spec.InstanceSpec, e.Status.InstanceStatus),
					e.Status.ReplicaModeMap)
			}
		}
		for _, r := range replicas.Items {
			if r.Spec.VolumeName == v.Name {
				fmt.Fprintf(&out, "  replica %s: %s, healthy %q, failed %q\n", r.Name,
					instanceText(r.Spec.InstanceSpec, r.Status.InstanceStatus), r.Spec.HealthyAt, r.Spec.FailedAt)
			}
		}
	}
	c.t.Logf("--- volumes ---\n%s", out.String())
	return names
}

func instanceText(spec longhorn.InstanceSpec, st longhorn.InstanceStatus) string {
	text := fmt.Sprintf("node %q, wanted %s, is %s, order %s, in %q at %s:%d", spec.NodeID, spec.DesireState,
		st.CurrentState, st.Order, st.InstanceManagerName, st.StorageIP, st.Port)
	for _, k := range st.Conditions {
		if k.Message != "" {
			text += fmt.Sprintf(", %s %s: %s", k.Type, k.Status, k.Message)
		}
	}
	return text
}

func (c *cluster) dumpInstanceManagers(ctx context.Context) {
	var all longhorn.InstanceManagerList
	if err := c.kube.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		c.t.Logf("instance managers: %v", err)
		return
	}
	var out strings.Builder
	for _, m := range all.Items {
		st := m.Status
		fmt.Fprintf(&out, "%s on %s: %s, %s, closed %q, deleted %v\n", m.Name, m.Spec.NodeID, m.Spec.Type, st.CurrentState,
			st.ClosedPod, m.DeletionTimestamp != nil)
		for _, list := range []map[string]longhorn.InstanceProcess{st.InstanceEngines, st.InstanceReplicas, st.Instances} {
			for name, p := range list {
				fmt.Fprintf(&out, "  %s: %s, order %s %s\n", name, p.Status.State, p.Spec.Order, p.Status.ErrorMsg)
			}
		}
	}
	c.t.Logf("--- instance managers ---\n%s", out.String())
}

func (c *cluster) dumpEvents(ctx context.Context, volumes []string) {
	ks, err := kubernetes.NewForConfig(c.RESTConfig(c.t))
	if err != nil {
		c.t.Log(err)
		return
	}
	list, err := ks.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		c.t.Logf("events: %v", err)
		return
	}
	slices.SortFunc(list.Items, func(a, b corev1.Event) int { return cmp.Compare(when(a), when(b)) })
	var out strings.Builder
	for i, e := range list.Items {
		// Those of volumes that are there, however old, and what has happened last.
		of := func(v string) bool {
			name := e.InvolvedObject.Name
			return name == v || strings.HasPrefix(name, v+"-e-") || strings.HasPrefix(name, v+"-r-")
		}
		if i < len(list.Items)-dumpEvents && !slices.ContainsFunc(volumes, of) {
			continue
		}
		fmt.Fprintf(&out, "%s %s %s %s: %s\n", when(e), e.Type, e.Reason, e.InvolvedObject.Name, e.Message)
	}
	c.t.Logf("--- events ---\n%s", out.String())
}

func when(e corev1.Event) string {
	at := e.LastTimestamp.Time
	if at.IsZero() {
		at = e.EventTime.Time
	}
	return at.UTC().Format("15:04:05")
}

// dumpLogs shows the ends of logs, of those of volumes if names are given.
func (c *cluster) dumpLogs(node, pattern string, volumes []string) {
	logs, _ := filepath.Glob(pattern) // the pattern is well-formed
	for _, l := range logs {
		if volumes != nil && !slices.ContainsFunc(volumes, func(v string) bool {
			return strings.HasPrefix(filepath.Base(l), v+"-e-") || strings.HasPrefix(filepath.Base(l), v+"-r-")
		}) {
			continue
		}
		if p, err := os.ReadFile(l); err == nil {
			c.t.Logf("--- %s %s ---\n%s", node, filepath.Base(l), p[max(0, len(p)-dumpTail):])
		}
	}
}
