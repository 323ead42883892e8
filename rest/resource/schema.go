package resource

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// Plural returns the plural name of a schema id, in camel case. Its lower-case form is the path of
// the collection.
func Plural(id string) string {
	for _, end := range []string{"s", "ch", "x"} {
		if strings.HasSuffix(id, end) {
			return id + "es"
		}
	}
	return id + "s"
}

// Path returns the path element of a schema id's collection.
func Path(id string) string { return strings.ToLower(Plural(id)) }

// Lookup finds a type by its schema id, ignoring case.
func Lookup(id string) (Type, bool) {
	for _, t := range Types {
		if strings.EqualFold(t.ID, id) {
			return t, true
		}
	}
	return Type{}, false
}

// Schema derives the type's schema. Links are left to the caller, who knows the request's base URL.
// Only the actions for which served answers true are declared.
func (t Type) Schema(served func(action string) bool) Schema {
	s := Schema{
		PluralName:        Plural(t.ID),
		CollectionMethods: t.CollectionMethods,
		ResourceMethods:   t.ResourceMethods,
		ResourceFields:    map[string]SchemaField{},
	}
	s.ID, s.Type = t.ID, TypeSchema
	s.Links, s.Actions = map[string]string{}, map[string]string{}
	if s.CollectionMethods == nil {
		s.CollectionMethods = getOnly
	}
	if s.ResourceMethods == nil {
		s.ResourceMethods = getOnly
	}
	addFields(s.ResourceFields, reflect.TypeOf(t.Of))
	for _, a := range t.Actions {
		if !served(a.Name) {
			continue
		}
		if s.ResourceActions == nil {
			s.ResourceActions = map[string]ResourceAction{}
		}
		s.ResourceActions[a.Name] = ResourceAction{Input: a.Input, Output: a.Output}
	}
	return s
}

// addFields declares every field of a struct that has a name on the wire; the envelope's own are
// not declared.
func addFields(into map[string]SchemaField, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous && f.Type != reflect.TypeFor[Resource]() {
			addFields(into, f.Type)
		}
		if f.Anonymous || f.Tag.Get("schema") == "-" {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		into[name] = fieldOf(f)
	}
}

func fieldOf(f reflect.StructField) SchemaField {
	out := SchemaField{FieldType: f.Tag.Get("schema")}
	if out.FieldType == "" {
		out.FieldType = typeString(f.Type)
	}
	for _, flag := range strings.Split(f.Tag.Get("api"), ",") {
		switch flag {
		case "":
		case "create":
			out.Create = true
		case "update":
			out.Update = true
		case "required":
			out.Required = true
		case "unique":
			out.Unique = true
		case "nullable":
			out.Nullable = true
		default:
			panic(fmt.Sprintf("resource: field %s has the unknown api flag %q", f.Name, flag))
		}
	}
	if text, ok := f.Tag.Lookup("default"); ok {
		out.Default = defaultValue(f, text)
	}
	return out
}

// defaultValue reads a default tag in the kind of its field, so that 2880 is sent as a number.
func defaultValue(f reflect.StructField, text string) any {
	switch f.Type.Kind() {
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			panic(fmt.Sprintf("resource: field %s: default %q is not a number", f.Name, text))
		}
		return n
	case reflect.Bool:
		return text == "true"
	}
	return text
}

// typeString gives the schema's spelling of a Go type.
func typeString(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "int"
	case reflect.Bool:
		return "bool"
	case reflect.Float64:
		return "float"
	case reflect.String:
		return "string"
	case reflect.Slice:
		return "array[" + typeString(t.Elem()) + "]"
	case reflect.Map:
		return "map[" + typeString(t.Elem()) + "]"
	case reflect.Pointer:
		return typeString(t.Elem())
	case reflect.Struct:
		for _, known := range Types {
			if reflect.TypeOf(known.Of) == t {
				return known.ID
			}
		}
	}
	panic(fmt.Sprintf("resource: no schema type for %s; declare it in Types or give the field a schema tag", t))
}

// OfferedWhen returns the set that a volume in the given state and robustness belongs to.
func OfferedWhen(state, robustness string) When {
	if robustness == "faulted" {
		return WhenFaulted
	}
	switch state {
	case "detached":
		return WhenDetached
	case "attaching":
		return WhenAttaching
	case "attached":
		return WhenAttached
	}
	return WhenOther
}
