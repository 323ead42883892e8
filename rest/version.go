package rest

import (
	"ankole.storage/rest/resource"
)

// version describes the one version of the API: a link to the collection of every schema.
func version(q *request) *resource.APIVersion {
	v := &resource.APIVersion{}
	v.ID, v.Type = "v1", resource.TypeAPIVersion
	v.Links, v.Actions = map[string]string{"self": q.base + "/v1"}, map[string]string{}
	for _, t := range resource.Types {
		v.Links[resource.Plural(t.ID)] = q.collectionURL(t.ID)
	}
	return v
}

func getVersion(q *request) (any, error) { return version(q), nil }

func listVersions(q *request) (any, error) {
	list := collection(q, resource.TypeAPIVersion, []*resource.APIVersion{version(q)})
	list.Links["latest"] = q.base + "/v1"
	return list, nil
}

// schema returns a type's schema with its links.
func schema(q *request, t resource.Type) resource.Schema {
	served, path := q.server.served(t.ID), objectPath(t.ID)
	s := t.Schema(func(action string) bool { return served[action] != nil || later[action+" "+path] != "" })
	s.Links["self"] = q.base + "/v1/schemas/" + t.ID
	s.Links["collection"] = q.collectionURL(t.ID)
	return s
}

func listSchemas(q *request) (any, error) {
	var all []resource.Schema
	for _, t := range resource.Types {
		all = append(all, schema(q, t))
	}
	return collection(q, resource.TypeSchema, all), nil
}

// getSchema answers an unknown id with an object that has no id: clients detect features by its
// absence.
func getSchema(q *request) (any, error) {
	t, ok := resource.Lookup(q.params["name"])
	if !ok {
		return &resource.Resource{Links: map[string]string{"self": q.self}, Actions: map[string]string{}}, nil
	}
	return schema(q, t), nil
}
