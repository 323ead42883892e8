package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/naming"
	restclient "ankole.storage/rest/client"
)

// Managers asks the managers of a namespace by their REST API.
type Managers struct {
	Client    client.Client
	Namespace string
	// Tokens gives what this process shows the API server; the managers ask that who it is. A run may
	// outlive a token. Nil: nothing is shown.
	Tokens restclient.Tokens
}

// Trim has the file system that is mounted from a volume trimmed. A refusal, for instance because
// no file system is mounted, is no failure of the run: repeating it would not help.
func (m Managers) Trim(ctx context.Context, volume string) error {
	var pods corev1.PodList
	if err := m.Client.List(ctx, &pods, client.InNamespace(m.Namespace),
		client.MatchingLabels{naming.LabelApp: naming.AppController}); err != nil {
		return fmt.Errorf("list managers: %w", err)
	}
	secure := restclient.Authority("ConfigMap "+naming.ConfigMapAuthority, func() ([]byte, error) {
		var authority corev1.ConfigMap
		err := m.Client.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: naming.ConfigMapAuthority}, &authority)
		return []byte(authority.Data[naming.AuthorityKey]), err
	})
	secure.ServerName = naming.ServiceBackend + "." + m.Namespace // Pods' addresses are in no certificate
	err := errors.New("no controller is ready")
	for i := range pods.Items {
		p := &pods.Items[i]
		if !condition.PodReady(p) || p.DeletionTimestamp != nil {
			continue
		}
		var api *restclient.Client
		api, err = restclient.NewOptions("https://"+net.JoinHostPort(p.Status.PodIP, strconv.Itoa(naming.PortManager)),
			restclient.Options{Tokens: m.Tokens, TLS: secure})
		if err != nil {
			return err
		}
		_, err = api.TrimFilesystem(ctx, volume)
		if err == nil || ctx.Err() != nil || refused(err) {
			break // else the next manager may do better
		}
	}
	return judged(volume, err)
}

// judged is what a run makes of the end of a trim.
func judged(volume string, err error) error {
	switch {
	case refused(err):
		slog.Warn("the file system is not trimmed", "volume", volume, "because", err)
		return nil
	case err != nil:
		return fmt.Errorf("trim the file system: %w", err)
	}
	slog.Info("the file system is trimmed", "volume", volume)
	return nil
}

// refused reports whether a manager has judged the order and will not follow it. Other answers say
// that nobody has looked at it, or not to the end: no leader, no right, no time, no API server.
func refused(err error) bool {
	var answer *restclient.Error
	return errors.As(err, &answer) &&
		(answer.Status == http.StatusInternalServerError || answer.Status == http.StatusNotFound)
}
