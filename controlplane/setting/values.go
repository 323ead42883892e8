package setting

import "fmt"

// Values are the stored values of the cluster by name. A setting that is missing, or whose stored
// value cannot be read, has its default: a controller must never stop because of a bad setting, and
// the webhooks keep bad values out.
//
// The typed readers are for names out of this package; an unknown name is a programming error and
// panics.
type Values map[string]string

// Int returns a setting of type int.
func (v Values) Int(name string) int { return orDefault(v, name, TypeInt, Int) }

// Float returns a setting of type float.
func (v Values) Float(name string) float64 { return orDefault(v, name, TypeFloat, Float) }

// Bool returns a setting of type bool.
func (v Values) Bool(name string) bool { return orDefault(v, name, TypeBool, Bool) }

// String returns a setting of type string.
func (v Values) String(name string) string { return orDefault(v, name, TypeString, String) }

func orDefault[T any](v Values, name string, want Type, read func(name, value string) (T, error)) T {
	d, err := Lookup(name)
	if err != nil || d.Type != want && d.Type != TypeDeprecated {
		panic(fmt.Sprintf("setting: %s is not a setting of type %s", name, want))
	}
	stored := v[name]
	if Validate(name, stored) != nil {
		stored = ""
	}
	value, err := read(name, stored)
	if err != nil {
		panic(fmt.Sprintf("setting: default of %s: %v", name, err))
	}
	return value
}
