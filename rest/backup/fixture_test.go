package backup_test

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/rest/apitest"
)

// fixture is a server of the API, with what tests of this package ask of it.
type fixture struct{ *apitest.Fixture }

func newFixture(t testing.TB, objects ...client.Object) *fixture {
	t.Helper()
	return &fixture{apitest.New(t, objects...)}
}
