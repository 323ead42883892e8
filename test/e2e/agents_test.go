package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// accountOf asks with a token of an account; of a Pod if that has a name.
func (c *cluster) accountOf(account string, pod *corev1.Pod) client.Client {
	c.t.Helper()
	request := &authenticationv1.TokenRequest{}
	if pod.Name != "" {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name,
			UID: pod.UID}
	}
	token, err := kubernetesOf(c.t, c).CoreV1().ServiceAccounts(namespace).CreateToken(c.t.Context(),
		account, request, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	cfg := rest.AnonymousClientConfig(c.RESTConfig(c.t))
	cfg.BearerToken = token.Status.Token
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme,
		longhorn.AddToScheme} {
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
	return again(func(ctx context.Context, as client.Client) error {
		o := object.DeepCopyObject().(T)
		if err := as.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o); err != nil {
			return err
		}
		change(o)
		return as.Update(ctx, o, client.DryRunAll)
	})
}

// again tries a write anew where somebody else has written in between: that refuses nothing.
func again(w write) write {
	return func(ctx context.Context, as client.Client) error {
		return retry.RetryOnConflict(retry.DefaultBackoff, func() error { return w(ctx, as) })
	}
}

func reads(secret string) write {
	return func(ctx context.Context, as client.Client) error {
		return as.Get(ctx, client.ObjectKey{Namespace: namespace, Name: secret}, &corev1.Secret{})
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

// agentsAreWitnesses looks into the log of the instance manager on each node: it has taken in the
// agent of its node, and no other one.
func (c *cluster) agentsAreWitnesses() {
	c.t.Helper()
	pods := c.podsByNode(naming.AppManager)
	for _, n := range c.Nodes {
		logs, err := filepath.Glob(filepath.Join(c.Dir, "nodes", n.Name, "logs", "*_instance-manager-*", "*.log"))
		if err != nil || len(logs) == 0 {
			c.t.Fatalf("no log of an instance manager on %s: %v", n.Name, err)
		}
		said := ""
		for _, path := range logs {
			text, err := os.ReadFile(path)
			if err != nil {
				c.t.Fatal(err)
			}
			said += string(text)
		}
		for node, pod := range pods {
			if took := strings.Contains(said, "manager="+pod.Name+" "); took != (node == n.Name) {
				c.t.Errorf("the witness on %s has taken in the agent of %s: %t", n.Name, node, took)
			}
		}
	}
}

// podsByNode are the Pods with a value of label app.
func (c *cluster) podsByNode(app string) map[string]*corev1.Pod {
	c.t.Helper()
	pods, err := kubernetesOf(c.t, c).CoreV1().Pods(namespace).List(c.t.Context(),
		metav1.ListOptions{LabelSelector: naming.LabelApp + "=" + app})
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string]*corev1.Pod{}
	for i := range pods.Items {
		out[pods.Items[i].Spec.NodeName] = &pods.Items[i]
	}
	return out
}

// agents: what the account of one node's agent may write is of that node, and it reads no Secret; a
// token that names no node writes nothing.
func agents(t *testing.T, c *cluster) {
	const name = "agents"
	c.create(name, 64*mib, 3)
	defer c.remove(name)
	c.attach(name, "node-1", 3)
	of := map[string]client.Client{}
	for node, pod := range c.podsByNode(naming.AppManager) {
		of[node] = c.accountOf(naming.ServiceAccount, pod)
	}
	own, other, any := of["node-1"], of["node-2"], c.accountOf(naming.ServiceAccount, &corev1.Pod{})
	c.agentsAreWitnesses()
	replicas := map[string]string{}
	for _, r := range c.replicasOf(name) {
		replicas[r.Spec.NodeID] = r.Name
	}
	replica := func(on string, change func(*longhorn.Replica)) write {
		return rewrites(&longhorn.Replica{}, replicas[on], change)
	}
	status := func(change func(*longhorn.Engine)) write {
		return again(func(ctx context.Context, as client.Client) error {
			e := &longhorn.Engine{}
			if err := as.Get(ctx, client.ObjectKey{Namespace: namespace, Name: c.engine(name).Name}, e); err != nil {
				return err
			}
			change(e)
			return as.Status().Update(ctx, e, client.DryRunAll)
		})
	}
	node := func(name string) write {
		return rewrites(&longhorn.Node{}, name, func(n *longhorn.Node) { n.Spec.Name = name })
	}
	end := func(r *longhorn.Replica) { r.Finalizers = nil }
	judged(t, []tried{
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
		{"who belongs to a volume, by the agent of another node", other,
			status(func(e *longhorn.Engine) { e.Status.Membership.Generation++ }), "not to run there"},
		{"where an engine is", own, status(func(e *longhorn.Engine) { e.Status.IP = "10.0.0.1" }), "and nothing else"},
		{"an engine that has no state", own, status(func(e *longhorn.Engine) { e.Status.CurrentState = "" }),
			"and nothing else"},
		{"the certificate", own, reads(naming.SecretGRPCTLS), "cannot get resource"},
		{"the keys of volumes", own, reads(naming.SecretVolumeKeys), "cannot get resource"},
		{"the key of the certificates", own, reads(naming.SecretGRPCCA), "cannot get resource"},
		{"a Pod", own, func(ctx context.Context, as client.Client) error {
			return as.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x"}}, client.DryRunAll)
		}, "cannot create resource"},
	})
	controllers(t, c)
}

// controllers: outside of the namespace their account writes what is of this system.
func controllers(t *testing.T, c *cluster) {
	as := c.accountOf(naming.ServiceAccountControl, &corev1.Pod{})
	creates := func(o client.Object) write {
		return func(ctx context.Context, as client.Client) error {
			return as.Create(ctx, o.DeepCopyObject().(client.Object), client.DryRunAll)
		}
	}
	kind := func(group string) *apiextensionsv1.CustomResourceDefinition {
		preserve := true
		return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "things." + group},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: group, Scope: apiextensionsv1.ClusterScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing",
					ListKind: "ThingList"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", XPreserveUnknownFields: &preserve}}}}}}
	}
	volume := func(source corev1.PersistentVolumeSource) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "agents"}, Spec: corev1.PersistentVolumeSpec{
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: source}}
	}
	driver := func(name string) corev1.PersistentVolumeSource {
		return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: name, VolumeHandle: "v"}}
	}
	class := func(provisioner string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "agents"}, Provisioner: provisioner}
	}
	of := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	webhook := func(change func(*admissionregistrationv1.ValidatingWebhookConfiguration)) write {
		o := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		return again(func(ctx context.Context, as client.Client) error {
			if err := as.Get(ctx, client.ObjectKey{Name: naming.WebhookValidatorConfiguration}, o); err != nil {
				return err
			}
			change(o)
			return as.Update(ctx, o, client.DryRunAll)
		})
	}
	judged(t, []tried{
		{"a kind of the system", as, creates(kind("longhorn.io")), ""},
		{"a kind of another", as, creates(kind("example.com")), "longhorn.io alone"},
		{"a webhook of another name", as, creates(&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: of("longhorn-webhook-other")}), "their own webhooks alone"},
		{"a mutating one", as, creates(&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: of("longhorn-webhook-other")}), "their own webhooks alone"},
		{"its own webhook", as, webhook(func(o *admissionregistrationv1.ValidatingWebhookConfiguration) {}), ""},
		{"its own webhook for everything", as, webhook(func(o *admissionregistrationv1.ValidatingWebhookConfiguration) {
			o.Webhooks[0].Rules[0].APIGroups = []string{"*"}
		}), "their own webhooks alone"},
		{"a volume of the driver", as, creates(volume(driver(naming.CSIDriver))), ""},
		{"a volume of another driver", as, creates(volume(driver("example.com"))), "driver.longhorn.io alone"},
		{"a directory of a node", as, creates(volume(corev1.PersistentVolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: "/etc"}})), "driver.longhorn.io alone"},
		{"a class of the driver", as, creates(class(naming.CSIDriver)), ""},
		{"a class of another driver", as, creates(class("example.com")), "driver.longhorn.io alone"},
	})
}

// tried is a write that somebody tries; want is in the refusal, and empty if it may be done.
type tried struct {
	what string
	as   client.Client
	do   write
	want string
}

func judged(t *testing.T, attempts []tried) {
	t.Helper()
	for _, row := range attempts {
		err := row.do(t.Context(), row.as)
		switch {
		case row.want == "" && err != nil:
			t.Errorf("%s: %v", row.what, err)
		case row.want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), row.want)):
			t.Errorf("%s: %v, want a refusal with %q", row.what, err, row.want)
		}
	}
}
