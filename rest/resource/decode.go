package resource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("the request body is not the JSON object expected: %w", err)
	}
	return nil
}
