package k8stest

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/standalone/control"
)

// workloads are a StatefulSet and a Deployment with a claim each.
func workloads() string {
	return `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: set, namespace: default}
spec:
  serviceName: set
` + likesNode3("set", "") + `
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: of-deployment, namespace: default}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: deployment, namespace: default}
spec:
  strategy: {type: Recreate}
` + likesNode3("deployment", "[{name: data, persistentVolumeClaim: {claimName: of-deployment}}]")
}

// likesNode3 is the part of a workload's spec that describes its Pods: they prefer node 3, and
// Kubernetes marks them for deletion 5 s after their node is lost (by default 5 minutes).
func likesNode3(app, volumes string) string {
	if volumes != "" {
		volumes = "\n      volumes: " + volumes
	}
	return fmt.Sprintf(`  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 0
      tolerations:
      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 5}
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 5}
      affinity:
        nodeAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 100
            preference: {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node-3]}]}
      containers:
      - name: work
        image: %[2]s
        imagePullPolicy: Never
        command: [sleep, "1000000"]
        volumeMounts: [{name: data, mountPath: /data}]%[3]s`, app, tools, volumes)
}

// workloadsMove: the node of a StatefulSet's and a Deployment's Pod loses its power; the setting
// says that Pods there that Kubernetes wants to end are deleted, so both run on other nodes, with
// what they had written. When the node is back, all volumes are whole. Then the node on which the
// StatefulSet's Pod is now is drained.
func workloadsMove(b *bed) {
	defer b.set("node-down-pod-deletion-policy", "delete-both-statefulset-and-deployment-pod")()
	b.apply(workloads())
	sums := map[string]string{}
	for _, app := range []string{"set", "deployment"} {
		p := b.podOf(app, "")
		if p.Spec.NodeName != "node-3" {
			b.t.Fatalf("Pod %s is on %s", p.Name, p.Spec.NodeName)
		}
		sums[app] = b.exec(p.Name, `dd if=/dev/urandom of=/data/one bs=1M count=16 2>/dev/null; sync; sha256sum /data/one`)
	}
	check := func(not, what string, began time.Time) (nodes []string) {
		for _, app := range []string{"set", "deployment"} {
			p := b.podOf(app, not)
			b.took(what+" to the Pod of "+app+" on "+p.Spec.NodeName, began)
			if got := b.exec(p.Name, "sha256sum /data/one"); got != sums[app] || len(got) < 64 {
				b.t.Errorf("%s: %q, want %q", app, got, sums[app])
			}
			nodes = append(nodes, p.Spec.NodeName)
		}
		return nodes
	}
	ctx := context.Background()
	began := time.Now()
	if err := control.Call(ctx, b.Dir, control.Request{Command: control.NodeKill, Node: "node-3"}); err != nil {
		b.t.Fatal(err)
	}
	b.reach("node-3")
	nodes := check("node-3", "from the loss of the node", began)
	began = time.Now()
	if err := control.Call(ctx, b.Dir, control.Request{Command: control.NodeStart, Node: "node-3"}); err != nil {
		b.t.Fatal(err)
	}
	b.managersRun()
	volumes := []string{b.volumeOf("data-set-0"), b.volumeOf("of-deployment")}
	for i, v := range volumes {
		b.usable(v, nodes[i], 3)
	}
	b.took("from power on to three replicas of both volumes", began)

	began = time.Now()
	b.kubectlOK("drain", nodes[0], "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=180s")
	b.reach(nodes[0])
	check(nodes[0], "from a drain", began)
	b.kubectlOK("uncordon", nodes[0])
	b.managersRun()
	b.kubectlOK("delete", "statefulset,deployment", "--all")
	b.unclaim("data-set-0", "of-deployment")
}

// podOf waits for the Pod of an app that runs, on any node but one, and is not about to end.
func (b *bed) podOf(app, not string) (found *corev1.Pod) {
	b.t.Helper()
	b.await("a Pod of "+app+" runs, not on "+not, func(ctx context.Context) error {
		list, err := b.ks.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			return err
		}
		said := "none"
		for i := range list.Items {
			p := &list.Items[i]
			if p.Spec.NodeName != not && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				found = p
				return nil
			}
			said = fmt.Sprintf("%s on %q is %s", p.Name, p.Spec.NodeName, p.Status.Phase)
		}
		return fmt.Errorf("last seen: %s", said)
	})
	return found
}
