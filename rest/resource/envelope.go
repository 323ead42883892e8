package resource

// HeaderLogError is the trailer of a log that broke off; it says why.
const HeaderLogError = "X-Ankole-Log-Error"

// Resource is the envelope of every object: identity, schema id, links and possible actions.
//
// At the top level Type, Links and Actions are always set. An object nested in another one keeps
// the zero value, which is sent as "links":null,"actions":null and no type; clients rely on the
// difference.
type Resource struct {
	ID   string `json:"id,omitempty" schema:"-"`
	Type string `json:"type,omitempty" schema:"-"`
	// Links maps a link's name to an absolute URL; "self" is always there at the top level.
	Links map[string]string `json:"links" schema:"-"`
	// Actions maps the name of an action that the object accepts now to the URL to POST to.
	Actions map[string]string `json:"actions" schema:"-"`
}

// Envelope returns the object's envelope. It lets code handle any resource by its identity.
func (r *Resource) Envelope() *Resource { return r }

// Object is any resource: a pointer to a struct that embeds Resource.
type Object interface{ Envelope() *Resource }

// Collection is a complete list of resources of one type. There is no paging.
type Collection[T any] struct {
	Type string `json:"type"`
	// ResourceType is the schema id of the members. It is set even when Data is empty.
	ResourceType string            `json:"resourceType"`
	Links        map[string]string `json:"links"`
	// CreateTypes maps a schema id to the URL that creates one; only volumes have it.
	CreateTypes map[string]string `json:"createTypes,omitempty"`
	// Data is never null.
	Data []T `json:"data"`
}

// CollectionType is the value of "type" in every list.
const CollectionType = "collection"

// Error is the body of every refusal.
type Error struct {
	Resource
	// Status is the HTTP status as a number, Code its reason phrase.
	Status int    `json:"status"`
	Code   string `json:"code"`
	// Message is the chain of causes, outermost first, separated by ": ".
	Message string `json:"message"`
	Detail  string `json:"detail"`
}

// APIVersion is the single version resource of the API root.
type APIVersion struct {
	Resource
}

// Empty is the answer of an action that has nothing to say.
type Empty struct {
	Resource
}
