package system

import (
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/serve"
)

// Routes are those of what the installation as a whole has.
func Routes() []serve.Route {
	return []serve.Route{
		{Path: "/v1/settings", Methods: serve.Get(listSettings)},
		{Path: "/v1/settings/{name}", Methods: map[string]serve.Handler{http.MethodGet: getSetting,
			http.MethodPut: updateSetting}},
		{Path: "/v1/systembackups", Methods: serve.Get(systemBackups.All)},
		{Path: "/v1/systembackups/{name}", Methods: serve.Get(systemBackups.One)},
		{Path: "/v1/systemrestores", Methods: serve.Get(systemRestores.All)},
		{Path: "/v1/systemrestores/{name}", Methods: serve.Get(systemRestores.One)},
		{Path: "/v1/supportbundles", Methods: serve.Get(supportBundles.All)},
		{Path: "/v1/supportbundles/{node}/{name}", Methods: serve.Get(supportBundles.One)},
		{Path: "/v1/supportbundles/{node}/{name}/download"},
		{Path: "/v1/events", Methods: serve.Get(listEvents)},
	}
}

// Streams are the lists of the same.
func Streams() map[string]serve.Stream {
	return map[string]serve.Stream{
		"settings":       {List: listSettings, Kinds: []client.Object{&lh.Setting{}}},
		"systembackups":  systemBackups.Stream(),
		"systemrestores": systemRestores.Stream(),
		"events":         {List: listEvents},
	}
}
