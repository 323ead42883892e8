package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	restclient "ankole.storage/rest/client"
)

// imageManagers waits until every backing image manager runs in a Pod on this network, with an
// address that the network gave to it, and returns the Pods.
func (n *networkTest) imageManagers(network string) (pods map[string]types.UID) {
	n.t.Helper()
	n.eventually("backing image managers on network "+network, func(ctx context.Context) error {
		pods = map[string]types.UID{}
		var all longhorn.BackingImageManagerList
		if err := n.kube.List(ctx, &all, client.InNamespace(namespace)); err != nil {
			return err
		}
		for _, m := range all.Items {
			uid, err := n.imagePod(ctx, m.Name, network, m.Status.IP, m.Status.StorageIP)
			if m.Status.CurrentState != longhorn.BackingImageManagerStateRunning || err != nil {
				return fmt.Errorf("%s is %s, %w", m.Name, m.Status.CurrentState, err)
			}
			pods[m.Name] = uid
		}
		if len(pods) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	return pods
}

// imagePod returns nil if a Pod asks for this network and has these addresses.
func (n *networkTest) imagePod(ctx context.Context, name, network, ip, storageIP string) (types.UID, error) {
	pod, err := n.ks.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	asked, wanted := pod.Annotations[networksAsked], ""
	if space, name, ok := strings.Cut(network, "/"); ok {
		wanted = fmt.Sprintf(`[{"namespace":%q,"name":%q,"interface":%q}]`, space, name, storageInterface)
	}
	on := storageIP == ip
	if network != "" {
		on = storageIP != ip && strings.HasPrefix(storageIP, n.PodNetwork(network))
	}
	if asked != wanted || pod.DeletionTimestamp != nil || ip != pod.Status.PodIP || !on {
		return "", fmt.Errorf("Pod %s asks for %q, has address %s and storage address %s", name, asked, ip, storageIP)
	}
	return pod.UID, nil
}

// imageOnNetwork makes an image that a user uploads. Its data source has an address on the network.
func (n *networkTest) imageOnNetwork(name, network string, content []byte) {
	n.t.Helper()
	ctx := n.t.Context()
	if _, err := n.rest.CreateBackingImage(ctx, restclient.BackingImageSpec{Name: name, SourceType: "upload",
		MinNumberOfCopies: 1}); err != nil {
		n.t.Fatal(err)
	}
	n.eventually("the data source of image "+name+" is on network "+network, func(ctx context.Context) error {
		d := &longhorn.BackingImageDataSource{}
		if err := n.kube.Get(ctx, key(name), d); err != nil {
			return err
		}
		_, err := n.imagePod(ctx, naming.BackingImageDataSourcePodName(name), network, d.Status.IP, d.Status.StorageIP)
		return err
	})
	n.eventually("the upload is taken", func(ctx context.Context) error {
		return n.rest.UploadBackingImage(ctx, name, bytes.NewReader(content), int64(len(content)))
	})
	n.imageCopies(name, 1, content)
}

// imageCopies waits until an image is ready on so many disks, with this content.
func (n *networkTest) imageCopies(name string, copies int, content []byte) {
	n.t.Helper()
	at := &imageTest{cluster: n.cluster}
	n.eventually(fmt.Sprintf("%d copies of image %s", copies, name), func(context.Context) error {
		ready, b := 0, at.image(name)
		for _, f := range b.Status.DiskFileStatusMap {
			if f.State == longhorn.BackingImageStateReady {
				ready++
			}
		}
		if ready != copies {
			return fmt.Errorf("%+v", b.Status.DiskFileStatusMap)
		}
		return nil
	})
	for _, dir := range at.directories() {
		if !strings.HasPrefix(filepath.Base(dir), name+"-") {
			continue
		}
		if got, err := os.ReadFile(filepath.Join(dir, "backing")); err != nil || !bytes.Equal(got, content) {
			n.t.Errorf("%s has %d bytes of another content, %v", dir, len(got), err)
		}
	}
}

// imagesFollow (C5, C6): the Pods of backing image managers are made anew by the change, data
// sources get the annotation, and a copy is made on the network.
func (n *networkTest) imagesFollow(change func()) {
	n.t.Helper()
	content := bytes.Repeat([]byte("image on a network "), 4096)[:64<<10]
	n.imageOnNetwork("c5", "", content)
	before := n.imageManagers("")
	change()
	for name, pod := range n.imageManagers(storageNetworks[0]) {
		if before[name] == pod {
			n.t.Errorf("the Pod of %s is the same as before", name)
		}
	}
	n.imageOnNetwork("c5-b", storageNetworks[0], content)
	at := &imageTest{cluster: n.cluster, content: content}
	at.change("c5", func(b *longhorn.BackingImage) { b.Spec.MinNumberOfCopies = 2 })
	n.imageCopies("c5", 2, content)
	n.deleteImages("c5", "c5-b")
}

func (n *networkTest) deleteImages(names ...string) {
	n.t.Helper()
	for _, name := range names {
		if err := n.rest.DeleteBackingImage(n.t.Context(), name); err != nil {
			n.t.Fatal(err)
		}
	}
	(&imageTest{cluster: n.cluster}).awaitNothing()
}

// exportOn (C12): an image of an attached volume is received on the network, or where the cluster's
// own network is if there is none.
func (n *networkTest) exportOn(volume, network string, sum [sha256.Size]byte) {
	n.t.Helper()
	at := &imageTest{cluster: n.cluster}
	at.export("c12", map[string]string{"volume-name": volume})
	address := ""
	n.eventually("the image of volume "+volume+" is made", func(ctx context.Context) error {
		d := &longhorn.BackingImageDataSource{}
		if err := n.kube.Get(ctx, key("c12"), d); err == nil && d.Status.StorageIP != "" {
			address = d.Status.StorageIP
		}
		b := &longhorn.BackingImage{}
		if err := n.kube.Get(ctx, key("c12"), b); err != nil {
			return err
		}
		for _, f := range b.Status.DiskFileStatusMap {
			if f.State == longhorn.BackingImageStateReady {
				return nil
			}
		}
		return fmt.Errorf("%+v", b.Status.DiskFileStatusMap)
	})
	for _, dir := range at.directories() {
		if content, err := os.ReadFile(filepath.Join(dir, "backing")); err != nil || sha256.Sum256(content) != sum {
			n.t.Errorf("%s has %d bytes of another content, %v", dir, len(content), err)
		}
	}
	on := n.PodNetwork(network)
	if network == "" {
		on = n.address("node-1")[:strings.LastIndex(n.address("node-1"), ".")+1]
	}
	if !strings.HasPrefix(address, on) {
		n.t.Errorf("the data source has storage address %q, want one of network %q, %s", address, network, on)
	}
	n.logged(n.engine(volume).Status.InstanceManagerName, `msg="export has ended"`, "to="+address+":8002")
	n.deleteImages("c12")
}
