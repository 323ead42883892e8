//go:build nolegacy

package metrics

import "sigs.k8s.io/controller-runtime/pkg/client"

const (
	connectionMetric = "longhorn_instance_manager_proxy_grpc_connection"
	legacyServed     = false
)

func legacyObjects(string) []client.Object { return nil }
