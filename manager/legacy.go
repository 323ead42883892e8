//go:build !nolegacy

package manager

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// refuseLegacy refuses nothing: instance managers of types engine and replica are looked after.
func refuseLegacy(context.Context, client.Reader, string) error { return nil }
