package process

import "testing"

// FuzzPortRange: what is read is a range of ports, and is written as it was meant.
func FuzzPortRange(f *testing.F) {
	for _, text := range []string{"10000-20000", "1-65535", "5-4", "-1-5", "0-1", "1-65536", "+1-2", "1--2", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParsePortRange(text)
		if err != nil {
			if r != (PortRange{}) {
				t.Fatalf("%q gives %v and %v", text, r, err)
			}
			return
		}
		if r.Start < 1 || r.End > 65535 || r.Len() < 1 {
			t.Fatalf("%q is %+v", text, r)
		}
		if again, err := ParsePortRange(r.String()); err != nil || again != r {
			t.Fatalf("%q is %v, which reads %v, %v", text, r, again, err)
		}
	})
}
