package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/rpc/bimrpc"
	"ankole.storage/controlplane/backingimage"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/process/engineclient"
)

// parameterImageUUID is what the process of a clone is told of the image.
const parameterImageUUID = "backing-image-uuid"

// sendTimeout bounds an order to a manager, which answers before it sends.
const sendTimeout = 10 * time.Second

// cloned is what decide looks at for a data source that clones an image.
type cloned struct {
	// Image is nil if there is none of the name. From is the address of a manager that has it ready
	// and sends least; empty: none has.
	Image *v1beta2.BackingImage
	From  string
}

// clones says whether a data source makes its file of another image.
func clones(d *v1beta2.BackingImageDataSource) bool {
	return d.Spec.SourceType == v1beta2.BackingImageSourceTypeClone
}

// received says whether somebody sends the file to the Pod.
func received(d *v1beta2.BackingImageDataSource) bool { return exports(d) || clones(d) }

// clonedImage is the image that a data source clones; empty if it clones none.
func clonedImage(d *v1beta2.BackingImageDataSource) string {
	if !clones(d) {
		return ""
	}
	return d.Spec.Parameters[v1beta2.BackingImageParameterBackingImage]
}

// recodes says whether the file is encrypted or decrypted, for which the Pod needs a key.
func recodes(d *v1beta2.BackingImageDataSource) bool {
	e := d.Spec.Parameters[v1beta2.BackingImageParameterEncryption]
	return clones(d) && (e == v1beta2.BackingImageEncryptionEncrypt || e == v1beta2.BackingImageEncryptionDecrypt)
}

// holdImage waits for a copy of the image that is cloned.
func (p *pass) holdImage() (d loop.Decision, ready bool) {
	switch c := p.s.Clone; {
	case c.Image == nil || c.Image.DeletionTimestamp != nil:
		p.failed("backing image " + clonedImage(p.d) + " does not exist any more")
		return loop.Decision{}, false
	case c.From == "":
		return p.awaits("no disk has backing image " + c.Image.Name + " ready")
	}
	return loop.Decision{}, true
}

// gatherImage reads the image that a data source clones, if it clones one.
func (r *Reconciler) gatherImage(ctx context.Context, d *v1beta2.BackingImageDataSource, s *seen) (err error) {
	name := clonedImage(d)
	if name == "" {
		return nil
	}
	if s.Clone.Image, err = get(ctx, r.client, d.Namespace, name, &v1beta2.BackingImage{}); err != nil ||
		s.Clone.Image == nil {
		return err
	}
	var managers v1beta2.BackingImageManagerList
	if err := r.client.List(ctx, &managers, client.InNamespace(d.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list backing image managers: %w", err)
	}
	s.Clone.From, _ = backingimage.Sender(managers.Items, s.Clone.Image)
	return nil
}

// sendImage orders a manager to send an image.
func (r *Reconciler) sendImage(ctx context.Context, from string, b *v1beta2.BackingImage, address, token string) error {
	conn, err := r.cfg.Connect(from)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	_, err = bimrpc.NewBackingImageManagerServiceClient(conn).Send(ctx, &bimrpc.SendRequest{Name: b.Name,
		Uuid: b.Status.UUID, ToAddress: address, Token: token})
	what := "send backing image " + b.Name + " from " + from
	if status.Code(err) == codes.InvalidArgument {
		return fmt.Errorf("%s: %w", what, errors.Join(engineclient.ErrInvalid, err))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// keyOrder is the order to receive a file that is encrypted or decrypted: it has the keys of the
// Secret that are about that. What is read here is kept nowhere, and in no error.
func (r *Reconciler) keyOrder(ctx context.Context, d *v1beta2.BackingImageDataSource) ([]byte, error) {
	name, namespace := d.Spec.Parameters[v1beta2.BackingImageParameterSecret],
		d.Spec.Parameters[v1beta2.BackingImageParameterSecretNamespace]
	if namespace != d.Namespace {
		return nil, fmt.Errorf("secret %s is to be in namespace %s, and not in %s: managers read no other one", name,
			d.Namespace, namespace)
	}
	var s corev1.Secret
	err := r.cfg.Access.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &s)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("secret %s, which has the key, does not exist", name)
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("the managers may not read secret %s, which has the key: name it in value backingImageSecrets "+
			"of the chart", name)
	case err != nil:
		return nil, fmt.Errorf("read secret %s: %w", name, err)
	}
	var order struct {
		Credentials map[string]string `json:"credentials"`
	}
	order.Credentials = map[string]string{}
	for key, value := range s.Data {
		if strings.HasPrefix(key, keyPrefix) {
			order.Credentials[key] = string(value)
		}
	}
	return json.Marshal(order)
}

// keyPrefix begins what a Secret says of encryption.
const keyPrefix = "CRYPTO_"
