package resource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// Decode reads a request body, one JSON object, into a pointer. Keys match whatever their case and
// unknown ones are ignored. An empty text is io.EOF, whose message clients know.
func Decode(text []byte, into any) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return io.EOF
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("the request body is not the JSON object expected: %w", err)
	}
	return nil
}
