package volume

import (
	"strconv"
	"testing"
)

// FuzzParseSize: a size is within what a volume can be, or an error.
func FuzzParseSize(f *testing.F) {
	for _, text := range []string{"", "20Gi", "21474836480", "-1", "1e9", "0.5Ki", "1m", "99999999999999999999", "1E",
		" 4Ki "} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := parseSize("size", text)
		if err != nil {
			return
		}
		if n < 0 || n > maxVolumeSize {
			t.Fatalf("%q is %d bytes", text, n)
		}
		if again, err := parseSize("size", strconv.FormatInt(n, 10)); err != nil || again != n {
			t.Fatalf("%q is %d bytes, which reads %d, %v", text, n, again, err)
		}
	})
}
