//go:build !nolegacy

package e2e

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/controlplane/object/naming"
	restclient "ankole.storage/rest/client"
	"ankole.storage/rest/resource"
	"ankole.storage/test/rig"
)

// managerWithout is an image of a manager that was built without support for older types.
const managerWithout = "ankole/manager:nolegacy"

// makeManagerWithout builds it.
func makeManagerWithout(t *testing.T, images string) {
	t.Helper()
	program, err := rig.Build("manager", "grpcnotrace", "nolegacy")
	if err == nil {
		program, err = filepath.Abs(program)
	}
	if err != nil {
		t.Fatal(err)
	}
	makeImage(t, images, "ankole-manager-nolegacy", program, "manager")
}

// TestNoLegacy (A19): managers without support for older types refuse to start while processes run
// in instance managers of them, name these, and change nothing. The managers of before go on. When
// they have removed the leftovers the others start, and volumes attach.
func TestNoLegacy(t *testing.T) {
	t.Parallel()
	o := startOlder(t, true)
	o.addEngineImages(engineOlder)
	const volume = "a19"
	o.createOlder(restclient.VolumeSpec{Name: volume, NumberOfReplicas: 3})
	sum := fillWith(t, o.cluster, o.attach(volume, "node-1", 3), 19)
	o.age(volume)
	pids := o.pidsOf(volume)

	before := o.managersOf(managerWithout)
	o.eventually("a manager refuses to start", func(ctx context.Context) error {
		text, err := o.logOf(ctx, managerWithout)
		if err == nil && (!strings.Contains(text, "go back to the version before") || !strings.Contains(text, volume+"-e-")) {
			err = fmt.Errorf("its log: %s", text)
		}
		return err
	})
	o.managersOf(before)
	o.managersRolled(o.ks)
	o.upgradeSystem()
	if now := o.pidsOf(volume); len(now) != len(pids) {
		t.Errorf("the processes %v of before are %v", pids, now)
	}
	holds(t, o.cluster, o.volume(volume).Controllers[0].Endpoint, sum, "the volume has other content")

	if _, err := o.rest.DetachVolume(t.Context(), volume, resource.DetachInput{}); err != nil {
		t.Fatal(err)
	}
	o.aioAlone()
	o.managersOf(managerWithout)
	o.managersRolled(o.ks)
	holds(t, o.cluster, o.attach(volume, "node-2", 3), sum, "the volume has other content")
}

// managersOf changes the controllers' image, and returns the one of before.
func (o *older) managersOf(image string) (before string) {
	o.t.Helper()
	o.eventually("managers have image "+image, func(ctx context.Context) error {
		set, err := o.ks.AppsV1().Deployments(namespace).Get(ctx, naming.DeploymentController, metav1.GetOptions{})
		if err != nil {
			return err
		}
		of := &set.Spec.Template.Spec.Containers[0].Image
		before, *of = *of, image
		_, err = o.ks.AppsV1().Deployments(namespace).Update(ctx, set, metav1.UpdateOptions{})
		return err
	})
	return before
}

// logOf is what the container of a manager of an image has written.
func (o *older) logOf(ctx context.Context, image string) (string, error) {
	pods, err := o.ks.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=longhorn-ui"})
	if err != nil {
		return "", err
	}
	for _, p := range pods.Items {
		if p.Spec.Containers[0].Image != image {
			continue
		}
		r, err := o.ks.CoreV1().Pods(namespace).GetLogs(p.Name, &corev1.PodLogOptions{}).Stream(ctx)
		if err != nil {
			return "", err
		}
		defer r.Close()
		text, err := io.ReadAll(r)
		return string(text), err
	}
	return "", fmt.Errorf("there is no manager of image %s", image)
}
