// Package volumefield has the one table of what a user can ask of a volume. A field has a row here and its place
// in the Volume object (package v1beta2); the REST API and its client, the CSI driver, the command line and
// admission are driven by the row. docs/design/volume-fields.md says what reads which column.
//
// It imports neither Kubernetes nor anything else of ours, as clients of the REST API are built with it.
package volumefield

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Kind says what a field holds, in the REST API and in the Volume object.
type Kind int

// The kinds of fields.
const (
	// Text is any text.
	Text Kind = iota
	// Word is one of Words.
	Word
	// Number is a whole number.
	Number
	// Flag is true or false.
	Flag
	// Size is a number of bytes in the object, and a text in the REST API: a quantity in what clients send,
	// a decimal number in what they read.
	Size
	// Tags is a list of texts.
	Tags
	// Own has a type of its own, Type, and is converted by hand.
	Own
)

// Field is a row of the table. The zero value of a column says that there is no such thing.
type Field struct {
	// Name is the field's name in the REST API; with a capital letter it is that of the Go fields of the
	// REST types and of v1beta2.VolumeSpec.
	Name string
	// Doc is what the REST type's field says beside its name.
	Doc  string
	Kind Kind
	// Type is the Go type of the REST field, where the kind does not say it.
	Type string
	// What is the field's name in messages.
	What string
	// Words are the choices. The object's schema has them too, and those of NotBuilt, each of which is refused
	// with what this version lacks for it.
	Words    []string
	NotBuilt map[string]string
	// Least and Most bound a number.
	Least, Most int64
	// Unit follows a number in messages.
	Unit string

	// Default is what admission puts where nothing is said; Setting names the setting that says it instead.
	Default, Setting string
	// Keeps: a change that says nothing about the field leaves the volume what it had, and Setting counts for
	// new volumes only.
	Keeps bool

	// API, Shown and Schema are the tags api, default and schema of the REST type: what the schema document
	// declares.
	API, Shown, Schema string
	// Change is the action that changes the field; nil: it is fixed at creation, or changed by other means.
	Change *Change
	// Parameter is that of a StorageClass.
	Parameter *Parameter
	// Flag of `ankole volume create`.
	Flag *Option
}

// Change is an action of the REST API that changes one field.
type Change struct {
	Action string
	// Input is the schema id of the input as the action declares it, if it is not UpdateXInput of updateX; Type
	// is the id by which it is declared, if that is another one.
	Input, Type string
	// Field is the name of the input's only field, where it is not that of the volume's.
	Field string
	// Quantity: the input's field is a text, though the volume's is a number.
	Quantity bool
	// When are the states of the volume in which the action is offered.
	When When
}

// Parameter is one of a StorageClass. With a Change, a VolumeAttributesClass may have it too.
type Parameter struct {
	// Name, if it is not that of the field.
	Name string
	// Default is what a class without the parameter asks for.
	Default string
	// Refused says why no value but false is taken.
	Refused string
}

// Option is a flag of the command line.
type Option struct{ Name, Usage string }

// When is a set of volume states.
type When uint8

// Sets of states in which an action of a volume is offered.
const (
	WhenDetached When = 1 << iota
	WhenAttaching
	WhenAttached
	// WhenFaulted is robustness faulted, whatever the state.
	WhenFaulted
	// WhenOther is creating, detaching or deleting, and not faulted.
	WhenOther

	// WhenAtRest is attached or detached, WhenOpened also on the way to attached.
	WhenAtRest = WhenDetached | WhenAttached
	WhenOpened = WhenDetached | WhenAttaching | WhenAttached
)

// Get returns the row of a field. There must be one.
func Get(name string) *Field {
	i := slices.IndexFunc(All, func(f Field) bool { return f.Name == name })
	if i < 0 {
		panic("volumefield: there is no field " + name)
	}
	return &All[i]
}

// GoName is the name of the Go fields.
func (f *Field) GoName() string { return strings.ToUpper(f.Name[:1]) + f.Name[1:] }

// In returns the field of a struct that has one: of a REST type or of v1beta2.VolumeSpec, by a pointer to it.
func (f *Field) In(spec any) reflect.Value {
	return reflect.ValueOf(spec).Elem().FieldByName(f.GoName())
}

// Check refuses a word that is none of the choices.
func (f *Field) Check(word string) error {
	all := strings.Join(f.Words, ", ")
	if lacks := f.NotBuilt[word]; lacks != "" {
		return fmt.Errorf("invalid %s: %q: this version has no %s; use one of %s", f.What, word, lacks, all)
	}
	if !slices.Contains(f.Words, word) {
		return fmt.Errorf("invalid %s: %q; use one of %s", f.What, word, all)
	}
	return nil
}

// Within says whether a number is within the bounds.
func (f *Field) Within(n int64) bool { return f.Least <= n && n <= f.Most }

// InputField is the name of the only field of the input of the action that changes the field.
func (f *Field) InputField() string { return cmp.Or(f.Change.Field, f.Name) }

// InputID is the schema id of that input as the action declares it.
func (f *Field) InputID() string {
	return cmp.Or(f.Change.Input, strings.Replace(f.Change.Action, "update", "Update", 1)+"Input")
}

// InputType is the schema id by which that input is declared.
func (f *Field) InputType() string { return cmp.Or(f.Change.Type, f.InputID()) }

// ParameterName is the name of the parameter of a StorageClass.
func (f *Field) ParameterName() string { return cmp.Or(f.Parameter.Name, f.Name) }
