package resource

import "iter"

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

// Members are the members with their ids; members of a type without ids have empty ones.
func (c *Collection[T]) Members() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for i := range c.Data {
			if !yield(idOf(&c.Data[i]), &c.Data[i]) {
				return
			}
		}
	}
}

// idOf is the id of a resource, or of what it points to.
func idOf[T any](member *T) string {
	if o, ok := any(member).(Object); ok {
		return o.Envelope().ID
	}
	if o, ok := any(*member).(Object); ok {
		return o.Envelope().ID
	}
	return ""
}

// Bare is the collection without its members.
func (c *Collection[T]) Bare() any {
	bare := *c
	bare.Data = []T{}
	return &bare
}

// MemberType is the schema id of the members.
func (c *Collection[T]) MemberType() string { return c.ResourceType }

// CollectionType is the value of "type" in every list.
const CollectionType = "collection"

// Changes is what has become of a Collection since the message before; streams send it to clients
// that ask for it. It is our addition.
type Changes[T any] struct {
	// Type is ChangesType.
	Type         string `json:"type"`
	ResourceType string `json:"resourceType"`
	// Removed are the ids of members that are gone; never null.
	Removed []string `json:"removed"`
	// Data are the members that were added or have changed, whole; never null.
	Data []T `json:"data"`
}

// ChangesType is the value of "type" in Changes.
const ChangesType = "changes"

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
