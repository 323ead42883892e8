package e2e

import (
	"context"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/naming"
)

// agentOf asks with a token of the agents' account; of a Pod if that has a name.
func (c *cluster) agentOf(pod *corev1.Pod) client.Client {
	c.t.Helper()
	request := &authenticationv1.TokenRequest{}
	if pod.Name != "" {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name,
			UID: pod.UID}
	}
	token, err := kubernetesOf(c.t, c).CoreV1().ServiceAccounts(namespace).CreateToken(c.t.Context(),
		naming.ServiceAccount, request, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	cfg := rest.AnonymousClientConfig(c.RESTConfig(c.t))
	cfg.BearerToken = token.Status.Token
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, longhorn.AddToScheme} {
		if err := add(scheme); err != nil {
			c.t.Fatal(err)
		}
	}
	as, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		c.t.Fatal(err)
	}
	return as
}

// write is tried as somebody, for the API server's judgement alone.
type write func(ctx context.Context, as client.Client) error

// rewrites gets object name and updates it as change makes it.
func rewrites[T client.Object](object T, name string, change func(T)) write {
	return func(ctx context.Context, as client.Client) error {
		o := object.DeepCopyObject().(T)
		if err := as.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o); err != nil {
			return err
		}
		change(o)
		return as.Update(ctx, o, client.DryRunAll)
	}
}

// reads a Secret. In a cluster that speaks plaintext there is no certificate.
func reads(secret string) write {
	return func(ctx context.Context, as client.Client) error {
		return client.IgnoreNotFound(as.Get(ctx, client.ObjectKey{Namespace: namespace, Name: secret}, &corev1.Secret{}))
	}
}

func makesOrphan(on string) write {
	return func(ctx context.Context, as client.Client) error {
		o := &longhorn.Orphan{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "orphan-agents",
			Labels: naming.OrphanLabels(on, "replica-data")}}
		o.Spec.NodeID, o.Spec.OrphanType = on, longhorn.OrphanTypeReplicaData
		o.Spec.Parameters = map[string]string{longhorn.OrphanParameterDataName: "x-12345678",
			longhorn.OrphanParameterDiskName: "d", longhorn.OrphanParameterDiskUUID: "u",
			longhorn.OrphanParameterDiskPath: "/p", longhorn.OrphanParameterDiskType: "filesystem"}
		return as.Create(ctx, o, client.DryRunAll)
	}
}

// agents: what the account of one node's agent may write is of that node, and it reads no Secret
// but the certificate; a token that names no node writes nothing.
func agents(t *testing.T, c *cluster) {
	const name = "agents"
	c.create(name, 64*mib, 3)
	defer c.remove(name)
	c.attach(name, "node-1", 3)
	pods, err := kubernetesOf(t, c).CoreV1().Pods(namespace).List(t.Context(),
		metav1.ListOptions{LabelSelector: naming.LabelApp + "=" + naming.AppManager})
	if err != nil {
		t.Fatal(err)
	}
	var pod *corev1.Pod
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName == "node-1" {
			pod = &pods.Items[i]
		}
	}
	own, any := c.agentOf(pod), c.agentOf(&corev1.Pod{})
	replicas := map[string]string{}
	for _, r := range c.replicasOf(name) {
		replicas[r.Spec.NodeID] = r.Name
	}
	replica := func(on string, change func(*longhorn.Replica)) write {
		return rewrites(&longhorn.Replica{}, replicas[on], change)
	}
	status := func(change func(*longhorn.Engine)) write {
		return func(ctx context.Context, as client.Client) error {
			e := &longhorn.Engine{}
			if err := as.Get(ctx, client.ObjectKey{Namespace: namespace, Name: c.engine(name).Name}, e); err != nil {
				return err
			}
			change(e)
			return as.Status().Update(ctx, e, client.DryRunAll)
		}
	}
	node := func(name string) write {
		return rewrites(&longhorn.Node{}, name, func(n *longhorn.Node) { n.Spec.Name = name })
	}
	end := func(r *longhorn.Replica) { r.Finalizers = nil }
	for _, row := range []struct {
		what string
		as   client.Client
		do   write
		want string // of the refusal; empty: it may
	}{
		{"its own node", own, node("node-1"), ""},
		{"another node", own, node("node-2"), "the agent of node node-1 may write no other Node object"},
		{"its own node without a node in the token", any, node("node-1"), "has to name its node"},
		{"the end of a replica of its node", own, replica("node-1", end), ""},
		{"the end of another replica", own, replica("node-2", end), "no replica of another node"},
		{"another disk for a replica of its node", own,
			replica("node-1", func(r *longhorn.Replica) { r.Spec.DiskPath = "/etc" }), "change nothing of it"},
		{"a replica of its node given away", own,
			replica("node-1", func(r *longhorn.Replica) { r.Spec.NodeID = "node-2" }), "no replica of another node"},
		{"an orphan of its node", own, makesOrphan("node-1"), ""},
		{"an orphan of another", own, makesOrphan("node-2"), "no orphan"},
		{"who belongs to a volume", own, status(func(e *longhorn.Engine) { e.Status.Membership.Generation++ }), ""},
		{"where an engine is", own, status(func(e *longhorn.Engine) { e.Status.IP = "10.0.0.1" }), "and nothing else"},
		{"an engine that has no state", own, status(func(e *longhorn.Engine) { e.Status.CurrentState = "" }),
			"and nothing else"},
		{"the certificate", own, reads(naming.SecretGRPCTLS), ""},
		{"the keys of volumes", own, reads(naming.SecretVolumeKeys), "cannot get resource"},
		{"the key of the certificates", own, reads(naming.SecretGRPCCA), "cannot get resource"},
		{"a Pod", own, func(ctx context.Context, as client.Client) error {
			return as.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x"}}, client.DryRunAll)
		}, "cannot create resource"},
	} {
		err := row.do(t.Context(), row.as)
		switch {
		case row.want == "" && err != nil:
			t.Errorf("%s: %v", row.what, err)
		case row.want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), row.want)):
			t.Errorf("%s: %v, want a refusal with %q", row.what, err, row.want)
		}
	}
}
