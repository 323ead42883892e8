package command

import "testing"

// Sizes are plain bytes or in binary units; anything else is refused and leaves the value as it
// was.
func TestSize(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "1073741824": 1 << 30, "1g": 1 << 30, "10G": 10 << 30,
		"10Gi":  10 << 30,
		"10GiB": 10 << 30, "4k": 4096, "1p": 1 << 50} {
		var s size
		if err := s.Set(text); err != nil || int64(s) != want {
			t.Errorf("%q is %d, %v; want %d", text, s, err, want)
		}
	}
	for _, text := range []string{"", "g", "-1", "1.5g", "1gg", "9223372036854775807g", "0x10", "1 g", "i", "b"} {
		s := size(7)
		if err := s.Set(text); err == nil || s != 7 {
			t.Errorf("%q is %d, %v", text, s, err)
		}
	}
}

func FuzzSize(f *testing.F) {
	for _, text := range []string{"1", "10GiB", "-1", "1bib", "8p", "9999999999999999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s, again size
		if s.Set(text) != nil {
			return
		}
		if err := again.Set(s.String()); s < 0 || err != nil || again != s {
			t.Fatalf("%q is %d, which reads %d, %v", text, s, again, err)
		}
	})
}
