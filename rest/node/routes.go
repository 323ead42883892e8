package node

import (
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	imclient "ankole.storage/instancemanager/client"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

// API answers requests about nodes and what is on them.
type API struct {
	// EngineImage is the default engine image, used until setting default-engine-image is filled.
	EngineImage string
	// Connect opens a client to the instance manager at an address, for the logs of instances. Nil:
	// those are refused.
	Connect func(address string) (*imclient.Client, error)
}

// Routes are those of nodes, tags, engine images, instance managers and their logs, and orphans.
func (a *API) Routes() []serve.Route {
	return []serve.Route{
		{Path: "/v1/nodes", Methods: serve.Get(listNodes)},
		{Path: "/v1/nodes/{name}",
			Methods: map[string]serve.Handler{http.MethodGet: getNode, http.MethodPut: updateNode,
				http.MethodDelete: deleteNode},
			Actions: map[string]serve.Handler{resource.ActionDiskUpdate: updateDisks}},
		{Path: "/v1/disktags", Methods: serve.Get(listDiskTags)}, {Path: "/v1/nodetags", Methods: serve.Get(listNodeTags)},
		{Path: "/v1/engineimages",
			Methods: map[string]serve.Handler{http.MethodGet: a.listEngineImages, http.MethodPost: a.createEngineImage}},
		{Path: "/v1/engineimages/{name}",
			Methods: map[string]serve.Handler{http.MethodGet: a.getEngineImage, http.MethodDelete: a.deleteEngineImage}},
		{Path: "/v1/instancemanagers", Methods: serve.Get(instanceManagers.All)},
		{Path: "/v1/instancemanagers/{name}", Methods: serve.Get(instanceManagers.One)},
		{Path: "/v1/instancelogs/{name}", Raw: a.serveLog, Stream: true},
		{Path: "/v1/orphans", Methods: serve.Get(orphans.All)},
		{Path: "/v1/orphans/{name}",
			Methods: map[string]serve.Handler{http.MethodGet: orphans.One, http.MethodDelete: deleteOrphan}},
	}
}

// Streams are the lists of the same.
func (a *API) Streams() map[string]serve.Stream {
	return map[string]serve.Stream{
		// What a node lacks matters by what volumes want of it.
		"nodes":        {List: listNodes, Kinds: []client.Object{&lh.Node{}, &lh.Volume{}}},
		"engineimages": {List: a.listEngineImages, Kinds: []client.Object{&lh.EngineImage{}}},
		"orphans":      orphans.Stream(),
	}
}
