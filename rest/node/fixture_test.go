package node_test

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/rest"
	"ankole.storage/rest/apitest"
)

// fixture is a server of the API, with what tests of this package ask of it.
type fixture struct{ *apitest.Fixture }

func newFixture(t testing.TB, objects ...client.Object) *fixture {
	t.Helper()
	return &fixture{apitest.New(t, objects...)}
}

func newFixtureWith(t testing.TB, funcs interceptor.Funcs, change func(*rest.Config),
	objects ...client.Object) *fixture {
	t.Helper()
	return &fixture{apitest.With(t, funcs, change, objects...)}
}
