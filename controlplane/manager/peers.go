package manager

import (
	"context"
	"fmt"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/controlplane/condition"
	"ankole.storage/controlplane/naming"
)

// managerOn finds the manager of a node, which does there what cannot be done from here.
func managerOn(pods client.Reader, namespace string) func(ctx context.Context, node string) (string, error) {
	return func(ctx context.Context, name string) (string, error) {
		var list corev1.PodList
		err := pods.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{naming.LabelApp: naming.AppManager})
		if err != nil {
			return "", fmt.Errorf("list manager Pods: %w", err)
		}
		for i := range list.Items {
			if pod := &list.Items[i]; pod.Spec.NodeName == name && condition.PodReady(pod) && pod.Status.PodIP != "" {
				return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(naming.PortAdmissionWebhook)), nil
			}
		}
		return "", fmt.Errorf("no manager Pod is ready on node %s; check the DaemonSet %s", name, naming.DaemonSetManager)
	}
}
