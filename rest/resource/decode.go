package resource

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"
)

// Decode reads a request body, one JSON object, into a pointer. Keys match whatever their case and
// unknown ones are ignored. An empty text is io.EOF, whose message clients know.
func Decode(text []byte, into any) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return io.EOF
	}
	var err error
	switch {
	case !utf8.Valid(text):
		err = errors.New("it is not UTF-8") // names would silently become others
	case string(bytes.TrimSpace(text)) == "null":
		err = errors.New("it is null") // which would pass for an object without fields
	default:
		err = Plain(json.Unmarshal(text, into))
	}
	if err != nil {
		return fmt.Errorf("the request body is not the JSON object expected: %w", err)
	}
	return nil
}

// Plain says of an error of encoding/json about a value of the wrong type what the user has to
// write; any other error it returns as it is.
func Plain(err error) error {
	wrong := (*json.UnmarshalTypeError)(nil)
	if !errors.As(err, &wrong) {
		return err
	}
	kind, number, _ := strings.Cut(wrong.Value, " ") // the number that is too large, or has a fraction
	is, write := article(kind), kindOf(wrong.Type)
	if number != "" {
		is, write = number, fmt.Sprintf("%s of at most %d bits", write, wrong.Type.Bits())
	}
	return fmt.Errorf("%s is %s; write %s", cmp.Or(wrong.Field, "it"), is, write)
}

// article puts one before what JSON calls a value.
func article(kind string) string {
	switch kind {
	case "bool":
		return "true or false"
	case "array":
		return "a list"
	case "object":
		return "a set of fields"
	}
	return "a " + kind
}

// kindOf names what a type takes, as users write it.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "a set of fields"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "a whole number"
}
