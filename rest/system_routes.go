package rest

import (
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
)

// systemRoutes are those of what the installation as a whole has.
func systemRoutes() []Route {
	return []Route{
		{Path: "/v1/settings", Methods: Get(listSettings)},
		{Path: "/v1/settings/{name}", Methods: map[string]Handler{http.MethodGet: getSetting, http.MethodPut: updateSetting}},
		{Path: "/v1/systembackups", Methods: Get(systemBackups.All)},
		{Path: "/v1/systembackups/{name}", Methods: Get(systemBackups.One)},
		{Path: "/v1/systemrestores", Methods: Get(systemRestores.All)},
		{Path: "/v1/systemrestores/{name}", Methods: Get(systemRestores.One)},
		{Path: "/v1/supportbundles", Methods: Get(supportBundles.All)},
		{Path: "/v1/supportbundles/{node}/{name}", Methods: Get(supportBundles.One)},
		{Path: "/v1/supportbundles/{node}/{name}/download"},
		{Path: "/v1/events", Methods: Get(listEvents)},
	}
}

// systemStreams are the lists of the same.
func systemStreams() map[string]Stream {
	return map[string]Stream{
		"settings":       {List: listSettings, Kinds: []client.Object{&lh.Setting{}}},
		"systembackups":  systemBackups.Stream(),
		"systemrestores": systemRestores.Stream(),
		"events":         {List: listEvents},
	}
}
