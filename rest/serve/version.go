package serve

import (
	"ankole.storage/rest/resource"
)

// version describes the one version of the API: a link to the collection of every schema.
func version(q *Request) *resource.APIVersion {
	v := &resource.APIVersion{}
	v.ID, v.Type = "v1", resource.TypeAPIVersion
	v.Links, v.Actions = map[string]string{"self": q.base + "/v1"}, map[string]string{}
	for _, t := range resource.Types {
		v.Links[resource.Plural(t.ID)] = q.CollectionURL(t.ID)
	}
	return v
}

func getVersion(q *Request) (any, error) { return version(q), nil }

func listVersions(q *Request) (any, error) {
	list := Collection(q, resource.TypeAPIVersion, []*resource.APIVersion{version(q)})
	list.Links["latest"] = q.base + "/v1"
	return list, nil
}

// schema returns a type's schema with its links.
func schema(q *Request, t resource.Type) resource.Schema {
	served, path := q.server.served(t.ID), objectPath(t.ID)
	s := t.Schema(func(action string) bool { return served[action] != nil || q.server.table.Later[action+" "+path] != "" })
	s.Links["self"] = q.base + "/v1/schemas/" + t.ID
	s.Links["collection"] = q.CollectionURL(t.ID)
	return s
}

func listSchemas(q *Request) (any, error) {
	var all []resource.Schema
	for _, t := range resource.Types {
		all = append(all, schema(q, t))
	}
	return Collection(q, resource.TypeSchema, all), nil
}

// getSchema answers an unknown id with an object that has no id: clients detect features by its
// absence.
func getSchema(q *Request) (any, error) {
	t, ok := resource.Lookup(q.Params["name"])
	if !ok {
		return &resource.Resource{Links: map[string]string{"self": q.Self}, Actions: map[string]string{}}, nil
	}
	return schema(q, t), nil
}
