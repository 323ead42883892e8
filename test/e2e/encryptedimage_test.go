package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/dataplane/backingimage/crypt"
	"ankole.storage/host/luks"
	restclient "ankole.storage/rest/client"
	"ankole.storage/test/lack"
	"ankole.storage/test/testcluster"
)

// passphrase is found nowhere but in its Secret.
const passphrase = "unmistakable words"

// TestF9EncryptedImage: an image is encrypted, once its Secret may be read and has a key; a volume
// on it opens with the passphrase and reads as the image, its own writes too; decrypted again it is
// what it was. Another passphrase is refused, and the key lies nowhere.
func TestF9EncryptedImage(t *testing.T) {
	if _, err := exec.LookPath("cryptsetup"); err != nil {
		lack.Skip(t, "cryptsetup")
	}
	web, content := serveImage(t)
	c := startWith(t, testcluster.Options{Manager: true, NodeGrace: nodeGrace})
	at := &imageTest{cluster: c, content: content}
	at.order("golden", web+"/golden.raw", 1)
	at.awaitImage("golden")

	t.Log("a Secret that may not be read, and one without a key")
	at.secret("image-key", map[string]string{luks.SecretPBKDF: "pbkdf2", luks.SecretIterations: "1000"})
	recode := func(name, of, how, secret string) error {
		_, err := at.rest.CreateBackingImage(t.Context(), restclient.BackingImageSpec{Name: name, SourceType: "clone",
			MinNumberOfCopies: 1, Parameters: map[string]string{"backing-image": of, "encryption": how, "secret": secret,
				"secret-namespace": namespace}})
		return err
	}
	if err := recode("secret", "golden", "encrypt", "image-key"); err == nil || !strings.Contains(err.Error(),
		"value backingImageSecrets") {
		t.Errorf("managers may read any Secret: %v", err)
	}
	at.permit("image-key", "other-key")
	at.eventually("the right is there", func(context.Context) error {
		return recode("secret", "golden", "encrypt", "image-key")
	})
	at.says("secret", "pending", "the Secret has no CRYPTO_KEY_VALUE")
	at.secret("image-key", map[string]string{luks.SecretValue: passphrase})
	at.awaitImage("secret")
	if b := at.image("secret"); b.Status.Size != imageSize+luks.HeaderBytes || b.Spec.Secret != "image-key" {
		t.Errorf("%+v, %+v", b.Spec, b.Status)
	}

	t.Log("a volume on it")
	at.encryptedVolume("secret")

	t.Log("decrypted, and not with another passphrase")
	at.secret("other-key", map[string]string{luks.SecretPBKDF: "pbkdf2", luks.SecretIterations: "1000",
		luks.SecretValue: "other " + passphrase})
	for name, key := range map[string]string{"plain": "image-key", "wrong": "other-key"} {
		if err := recode(name, "secret", "decrypt", key); err != nil {
			t.Fatal(err)
		}
	}
	at.says("wrong", "failed", "the key in the Secret does not open the image")
	at.awaitImage("plain")
	if got := at.download("plain"); !bytes.Equal(got, content) {
		t.Errorf("%d bytes of another content", len(got))
	}
	if err := recode("twice", "secret", "encrypt", "image-key"); err == nil || !strings.Contains(err.Error(),
		"encrypted already") {
		t.Errorf("encrypted twice: %v", err)
	}

	at.keyIsNowhere()
	for _, name := range []string{"golden", "secret", "plain", "wrong"} {
		if err := c.kube.Delete(t.Context(), at.image(name)); err != nil {
			t.Fatal(err)
		}
	}
	at.awaitNothing()
}

// secret makes a Secret, or adds to it.
func (at *imageTest) secret(name string, values map[string]string) {
	at.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, StringData: values}
	secrets := kubernetesOf(at.t, at.cluster).CoreV1().Secrets(namespace)
	if _, err := secrets.Create(at.t.Context(), s, metav1.CreateOptions{}); err == nil {
		return
	}
	old, err := secrets.Get(at.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		at.t.Fatal(err)
	}
	old.StringData = values
	if _, err := secrets.Update(at.t.Context(), old, metav1.UpdateOptions{}); err != nil {
		at.t.Fatal(err)
	}
}

// permit lets managers read Secrets, as value backingImageSecrets of the chart does.
func (at *imageTest) permit(secrets ...string) {
	at.t.Helper()
	roles := kubernetesOf(at.t, at.cluster).RbacV1().Roles(namespace)
	role, err := roles.Get(at.t.Context(), "longhorn-role", metav1.GetOptions{})
	if err != nil {
		at.t.Fatal(err)
	}
	role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"},
		ResourceNames: secrets, Verbs: []string{"get"}})
	if _, err := roles.Update(at.t.Context(), role, metav1.UpdateOptions{}); err != nil {
		at.t.Fatal(err)
	}
}

// says waits for the state of an image's copy, and for what is told of it.
func (at *imageTest) says(name string, state longhorn.BackingImageState, words string) {
	at.t.Helper()
	at.eventually(fmt.Sprintf("image %s is %s: %s", name, state, words), func(context.Context) error {
		for _, f := range at.image(name).Status.DiskFileStatusMap {
			if f.State == state && strings.Contains(f.Message, words) {
				return nil
			}
		}
		return fmt.Errorf("%+v", at.image(name).Status.DiskFileStatusMap)
	})
}

// deviceHead is a volume's device, which begins with a header.
type deviceHead struct{ io.ReaderAt }

func (d deviceHead) Head(w io.Writer, n int64) error {
	_, err := io.Copy(w, io.NewSectionReader(d, 0, n))
	return err
}

// encryptedVolume makes a volume of an encrypted image, as large as what that holds; what is behind
// the header of its device is the image, and what was written through the key.
func (at *imageTest) encryptedVolume(image string) {
	at.t.Helper()
	spec := restclient.VolumeSpec{Name: "opened", Size: strconv.Itoa(imageSize), NumberOfReplicas: 2, BackingImage: image,
		Encrypted: true}
	plain := spec
	plain.BackingImage = "golden"
	if _, err := at.rest.CreateVolume(at.t.Context(), plain); err == nil || !strings.Contains(err.Error(),
		"would not be a LUKS volume") {
		at.t.Errorf("an encrypted volume on a plain image: %v", err)
	}
	if _, err := at.rest.CreateVolume(at.t.Context(), spec); err != nil {
		at.t.Fatal(err)
	}
	endpoint := at.attach(spec.Name, "node-1", 2)
	key, err := crypt.Key(map[string]string{luks.SecretPBKDF: "pbkdf2", luks.SecretIterations: "1000",
		luks.SecretValue: passphrase})
	if err != nil {
		at.t.Fatal(err)
	}
	d := at.device(endpoint)
	c, err := crypt.Open(at.t.Context(), key, deviceHead{d})
	if err != nil {
		at.t.Fatal(err)
	}
	written := bytes.Repeat([]byte("written "), 512)
	want := bytes.Clone(at.content)
	copy(want[5*mib:], written)
	c.Encrypt(written, 5*mib)
	if _, err := d.WriteAt(written, luks.HeaderBytes+5*mib); err != nil {
		at.t.Fatal(err)
	}
	if err := d.Flush(); err != nil {
		at.t.Fatal(err)
	}
	got := make([]byte, mib)
	for off := int64(0); off < imageSize; off += mib {
		if _, err := d.ReadAt(got, luks.HeaderBytes+off); err != nil {
			at.t.Fatal(err)
		}
		if bytes.Equal(got, want[off:off+mib]) {
			at.t.Fatalf("the mebibyte at %d is in plain text", off)
		}
		if c.Decrypt(got, off); !bytes.Equal(got, want[off:off+mib]) {
			at.t.Fatalf("the mebibyte at %d has another content", off)
		}
	}
	if err := d.Close(); err != nil {
		at.t.Fatal(err)
	}
	at.detach(spec.Name)
	at.remove(spec.Name)
}

// keptObjects is where the API server keeps its objects, and Secrets are such.
const keptObjects = "/etcd/"

// keyIsNowhere looks for the passphrase in files of the nodes, in logs, and in all objects that are
// of images.
func (at *imageTest) keyIsNowhere() {
	at.t.Helper()
	files := 0
	err := filepath.WalkDir(at.Info.Dir, func(name string, f fs.DirEntry, err error) error {
		if err != nil || !f.Type().IsRegular() || strings.Contains(name, keptObjects) {
			return nil // what has gone meanwhile has nothing
		}
		text, err := os.ReadFile(name)
		if files++; err == nil && bytes.Contains(text, []byte(passphrase)) {
			at.t.Errorf("%s has the passphrase", name)
		}
		return nil
	})
	if err != nil || files < len(at.Nodes) {
		at.t.Errorf("%d files, %v", files, err)
	}
	clean := func(list any, err error) {
		text, wrong := json.Marshal(list)
		if err != nil || wrong != nil || bytes.Contains(text, []byte(passphrase)) {
			at.t.Errorf("%T has the passphrase, %v, %v", list, err, wrong)
		}
	}
	for _, list := range []client.ObjectList{&longhorn.BackingImageList{}, &longhorn.BackingImageDataSourceList{},
		&longhorn.BackingImageManagerList{}} {
		clean(list, at.kube.List(at.t.Context(), list, client.InNamespace(namespace)))
	}
	core := kubernetesOf(at.t, at.cluster).CoreV1()
	pods, err := core.Pods(namespace).List(at.t.Context(), metav1.ListOptions{})
	clean(pods, err)
	events, err := core.Events(namespace).List(at.t.Context(), metav1.ListOptions{})
	clean(events, err)
}
