package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/longhorn/v1beta2/crd"
	"ankole.storage/deploy"
	"ankole.storage/test/testcluster"
)

const (
	preUpgrade = "longhorn-pre-upgrade"
	// managerNext is an image of a manager that says to be of versionNext.
	managerNext, versionNext = "ankole/manager:next", "v1.3.0"
)

// TestUpgradeIsJudgedBeforehand runs the Job that Helm runs before an upgrade, with the account and
// the rights that the chart gives it, in a cluster in which nobody leads. It ends well where its
// version may follow the one that has led, and otherwise fails at once and says what to do.
func TestUpgradeIsJudgedBeforehand(t *testing.T) {
	t.Parallel()
	images := t.TempDir()
	program := filepath.Join(t.TempDir(), "manager")
	if out, err := exec.Command("go", "build", "-tags", "grpcnotrace", "-ldflags",
		"-X ankole.storage/host/version.Version="+versionNext, "-o", program, "ankole.storage/cmd/manager",
	).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	makeImage(t, images, "ankole-manager-next", program, "manager")
	c := startWith(t, testcluster.Options{Nodes: 1, Images: images})
	v := deploy.DefaultValues()
	v.ManagerImage = managerNext
	objects, err := deploy.Render(v)
	if err != nil {
		t.Fatal(err)
	}
	c.apply(objects[:2])  // the namespace, the priority
	c.judge(t, v, "", "") // no kind of ours is known yet
	c.defineKinds()
	for led, want := range map[string]string{
		"v1.2.9": "",
		"v1.3.0": "",
		"v1.4.0": "this manager is version v1.3.0, and the cluster has been led by version v1.4.0, whose objects it does " +
			"not know: install version v1.4.0 or a later one",
	} {
		t.Run("from "+led, func(t *testing.T) {
			c.judge(t, v, led, want)
		})
	}
}

// defineKinds defines those of the system.
func (c *cluster) defineKinds() {
	c.t.Helper()
	all, err := crd.All()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, d := range all {
		text, err := yaml.Marshal(d)
		if err != nil {
			c.t.Fatal(err)
		}
		c.apply([][]byte{text})
	}
}

// apply creates objects of an installation.
func (c *cluster) apply(docs [][]byte) {
	c.t.Helper()
	for _, doc := range docs {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(doc, &o.Object); err != nil {
			c.t.Fatal(err)
		}
		if err := c.kube.Create(context.Background(), o); err != nil {
			c.t.Fatal(err)
		}
	}
}

// judge has the Job run where a version has led, and expects it to fail with these words, or to end
// well where they are empty.
func (c *cluster) judge(t *testing.T, v deploy.Values, led, want string) {
	ctx := context.Background()
	if led != "" {
		s := &longhorn.Setting{Value: led,
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "current-longhorn-version"}}
		c.eventually("a version has led", func(ctx context.Context) error { return c.kube.Create(ctx, s) })
		defer c.kube.Delete(ctx, s)
	}
	objects, err := deploy.RenderPreUpgrade(v)
	if err != nil {
		t.Fatal(err)
	}
	c.apply(objects)
	defer func() {
		for _, doc := range objects {
			o := &unstructured.Unstructured{}
			if err := errors.Join(yaml.Unmarshal(doc, &o.Object),
				c.kube.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground))); err != nil {
				t.Error(err)
			}
		}
	}()
	ks := kubernetesOf(t, c)
	var end batchv1.JobConditionType
	var try string // what its Pods are labelled with
	c.eventually("the Job has ended", func(ctx context.Context) error {
		job, err := ks.BatchV1().Jobs(namespace).Get(ctx, preUpgrade, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range job.Status.Conditions {
			if condition.Status == corev1.ConditionTrue && (condition.Type == batchv1.JobComplete ||
				condition.Type == batchv1.JobFailed) {
				end, try = condition.Type, string(job.UID)
				return nil
			}
		}
		return fmt.Errorf("%+v", job.Status)
	})
	pods, err := ks.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: batchv1.ControllerUidLabel + "=" + try})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d Pods, want one try (%v)", len(pods.Items), err)
	}
	log, err := ks.CoreV1().Pods(namespace).GetLogs(pods.Items[0].Name, &corev1.PodLogOptions{}).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	said, err := io.ReadAll(log)
	if err != nil || (end == batchv1.JobFailed) != (want != "") || !strings.Contains(string(said), want) {
		t.Errorf("the Job is %s (%v), want %q; it said\n%s", end, err, want, said)
	}
}
