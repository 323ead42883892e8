package source

import (
	"fmt"
	"testing"
)

// FuzzContentRange: a range that is read is one, and is read again from how it is written.
func FuzzContentRange(f *testing.F) {
	for _, text := range []string{"bytes 0-9/10", "bytes 5-9/*", "bytes 9-5/10", "bytes */10",
		"bytes 0-99999999999999999999/1", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		first, last, total, err := contentRange(text)
		if err != nil {
			return
		}
		if first < 0 || last < first || total != -1 && last >= total {
			t.Errorf("%q is read as %d to %d of %d", text, first, last, total)
		}
		whole := fmt.Sprint(total)
		if total < 0 {
			whole = "*"
		}
		a, b, c, err := contentRange(fmt.Sprintf("bytes %d-%d/%s", first, last, whole))
		if err != nil || a != first || b != last || c != total {
			t.Errorf("%q is read again as %d to %d of %d, %v", text, a, b, c, err)
		}
	})
}
