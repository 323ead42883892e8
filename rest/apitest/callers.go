package apitest

import (
	"net/http"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
	"ankole.storage/rest"
	"ankole.storage/rest/access"
	"ankole.storage/rest/resttest"
)

// Guarded is a server that asks who its callers are. mode is setting api-anonymous-access.
func Guarded(t testing.TB, r *resttest.Reviews, mode string, change func(*rest.Config),
	more ...client.Object) *Fixture {
	t.Helper()
	objects := resttest.Cluster(resttest.Volume("demo")...)
	objects = append(objects, &lh.Setting{ObjectMeta: resttest.Meta(setting.APIAnonymousAccess), Value: mode})
	return With(t, r.Funcs(), func(c *rest.Config) {
		Judge(c)
		c.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		change(c)
	}, append(objects, more...)...)
}

// Judge configures what asks who callers are.
func Judge(c *rest.Config) {
	c.Open = false
	c.Judge = access.NewJudge(c.Client, lh.Namespace, nil)
	c.Sessions = &access.Sessions{Keys: &access.Keyring{Client: c.Client, Namespace: lh.Namespace}}
}

// Same changes nothing.
func Same(*rest.Config) {}

// Users are callers with their rights.
var Users = map[string][]string{"admin": {"*"}, "reader": {"list volumes", "get volumes", "watch volumes"},
	"owner": {"get volumes/demo", "update volumes/demo"}, "nobody": nil}

// Bearer is the header by which a user is known.
func Bearer(user string) []string { return []string{"Authorization", "Bearer of-" + user} }
