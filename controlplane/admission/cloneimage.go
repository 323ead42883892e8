package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ankole.storage/api/longhorn/v1beta2"
)

// encryptionOf says what becomes of the encryption of an image that is cloned.
func encryptionOf(b *v1beta2.BackingImage) string {
	return b.Spec.SourceParameters[v1beta2.BackingImageParameterEncryption]
}

// recoded says whether an image is encrypted or decrypted on the way.
func recoded(b *v1beta2.BackingImage) bool {
	e := encryptionOf(b)
	return e == v1beta2.BackingImageEncryptionEncrypt || e == v1beta2.BackingImageEncryptionDecrypt
}

// cloneProblem is what is wrong with the parameters of a clone, whatever there is in the cluster;
// empty: nothing.
func cloneProblem(b *v1beta2.BackingImage) (parameter, why string) {
	of := func(name string) string { return b.Spec.SourceParameters[name] }
	switch {
	case of(v1beta2.BackingImageParameterBackingImage) == "":
		return v1beta2.BackingImageParameterBackingImage, "it is missing: name the image that is cloned"
	case !recoded(b) && encryptionOf(b) != v1beta2.BackingImageEncryptionIgnore:
		return v1beta2.BackingImageParameterEncryption, fmt.Sprintf("%.40q; %s, %s and %s are possible", encryptionOf(b),
			v1beta2.BackingImageEncryptionEncrypt, v1beta2.BackingImageEncryptionDecrypt, v1beta2.BackingImageEncryptionIgnore)
	case !recoded(b):
		return "", ""
	case of(v1beta2.BackingImageParameterSecret) == "":
		return v1beta2.BackingImageParameterSecret, "it is missing: name the Secret that has the key"
	case of(v1beta2.BackingImageParameterSecretNamespace) == "":
		return v1beta2.BackingImageParameterSecretNamespace, "it is missing: name the namespace of the Secret that has the key"
	}
	return "", ""
}

// completeClone gives a clone what follows from the image that it is of. One that is encrypted or
// decrypted has another checksum, which nobody knows yet.
func (w world) completeClone(ctx context.Context, b *v1beta2.BackingImage) error {
	if b.Spec.SourceType != v1beta2.BackingImageSourceTypeClone {
		return nil
	}
	if recoded(b) {
		b.Spec.Checksum = ""
		if encryptionOf(b) == v1beta2.BackingImageEncryptionEncrypt {
			if b.Spec.Secret == "" {
				b.Spec.Secret = b.Spec.SourceParameters[v1beta2.BackingImageParameterSecret]
				b.Spec.SecretNamespace = b.Spec.SourceParameters[v1beta2.BackingImageParameterSecretNamespace]
			}
		}
		return nil
	}
	of, err := find(ctx, w, b.Spec.SourceParameters[v1beta2.BackingImageParameterBackingImage], &v1beta2.BackingImage{})
	if of != nil {
		orElse(&b.Spec.Checksum, of.Status.Checksum)
		orElse(&b.Spec.Secret, of.Spec.Secret)
		orElse(&b.Spec.SecretNamespace, of.Spec.SecretNamespace)
	}
	return err
}

// CheckClone refuses to clone an image that is not there, not known yet, or has the encryption that
// it is to get already.
func CheckClone(b, of *v1beta2.BackingImage) error {
	name := b.Spec.SourceParameters[v1beta2.BackingImageParameterBackingImage]
	refuse := func(format string, a ...any) error {
		return invalid("backing image %s cannot be cloned from backing image %s: %s", b.Name, name, fmt.Sprintf(format, a...))
	}
	secret, namespace := b.Spec.SourceParameters[v1beta2.BackingImageParameterSecret],
		b.Spec.SourceParameters[v1beta2.BackingImageParameterSecretNamespace]
	switch e := encryptionOf(b); {
	case of == nil:
		return refuse("there is no such backing image")
	case of.DeletionTimestamp != nil:
		return refuse("it is being deleted")
	case e == v1beta2.BackingImageEncryptionEncrypt && of.Spec.Secret != "":
		return refuse("it is encrypted already, with the key in Secret %s", of.Spec.Secret)
	case e == v1beta2.BackingImageEncryptionEncrypt && !sameSecret(b, secret, namespace):
		return refuse("it is to be encrypted with another Secret than spec.secret; leave that out")
	case e == v1beta2.BackingImageEncryptionDecrypt && of.Spec.Secret == "":
		return refuse("it is not encrypted: it has no Secret")
	case e == v1beta2.BackingImageEncryptionDecrypt && b.Spec.Secret != "":
		return refuse("what is decrypted has no key; leave spec.secret out")
	case recoded(b):
		return nil
	case !sameSecret(b, of.Spec.Secret, of.Spec.SecretNamespace):
		return refuse("it is encrypted with the key in Secret %q, and so is the clone; leave spec.secret out", of.Spec.Secret)
	case of.Status.Checksum == "":
		return refuse("it has no checksum, since no copy of it was ready yet; wait until one is")
	case b.Spec.Checksum != of.Status.Checksum:
		return refuse("it has SHA-512 %s, and another one is expected; leave the checksum out", of.Status.Checksum)
	}
	return nil
}

func sameSecret(b *v1beta2.BackingImage, name, namespace string) bool {
	return b.Spec.Secret == name && b.Spec.SecretNamespace == namespace
}

// checkImageKey refuses to encrypt or decrypt with a Secret that is not there, or that managers may
// not read.
func (w world) checkImageKey(ctx context.Context, b *v1beta2.BackingImage) error {
	name, namespace := b.Spec.SourceParameters[v1beta2.BackingImageParameterSecret],
		b.Spec.SourceParameters[v1beta2.BackingImageParameterSecretNamespace]
	if !recoded(b) {
		return nil
	}
	if namespace != w.namespace {
		return invalid("backing image %s: Secret %s is in namespace %s, and managers read those of %s alone: make one there",
			b.Name, name, namespace, w.namespace)
	}
	switch s, err := find(ctx, w, name, &corev1.Secret{}); {
	case apierrors.IsForbidden(err):
		return invalid("backing image %s: the managers may not read Secret %s: name it in value backingImageSecrets of the "+
			"chart, or in rule \"secrets\" of Role longhorn-role", b.Name, name)
	case err != nil:
		return err
	case s == nil:
		return invalid("backing image %s: there is no Secret %s in namespace %s", b.Name, name, namespace)
	}
	return nil
}
