package request

import (
	"errors"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/yaml"
)

// TestSampleOfEncryption: what users copy says what the driver reads, and names the Secret for
// each call.
func TestSampleOfEncryption(t *testing.T) {
	text, err := os.ReadFile("../../deploy/samples/encrypted.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var secret corev1.Secret
	var class storagev1.StorageClass
	first, second, _ := strings.Cut(string(text), "\n---\n")
	if err := errors.Join(yaml.UnmarshalStrict([]byte(first), &secret),
		yaml.UnmarshalStrict([]byte(second), &class)); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadKey(secret.StringData); err != nil {
		t.Error(err)
	}
	w, unknown, err := ParseClass(class.Parameters)
	if err != nil || len(unknown) > 0 || !w.Volume.Encrypted {
		t.Errorf("%+v, unknown %v, %v", w, unknown, err)
	}
	for _, call := range []string{"provisioner", "node-stage", "node-publish", "node-expand"} {
		prefix := reservedPrefix + call + "-secret-name"
		if class.Parameters[prefix] != secret.Name || class.Parameters[prefix+"space"] != secret.Namespace {
			t.Errorf("%s is %q in %q", call, class.Parameters[prefix], class.Parameters[prefix+"space"])
		}
	}
}
