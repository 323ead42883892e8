package listener

import "testing"

// TestInterfaceAddress: an interface has its address, one that is not there none, and process nodes
// say what stands for them.
func TestInterfaceAddress(t *testing.T) {
	for name, want := range map[string]string{"lo": "127.0.0.1", "lhnet1": ""} {
		if got, err := InterfaceAddress(name); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
	t.Setenv(InterfacesVariable, `{"lhnet1": "127.9.0.1"}`)
	for name, want := range map[string]string{"lo": "", "lhnet1": "127.9.0.1"} {
		if got, err := InterfaceAddress(name); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
	t.Setenv(InterfacesVariable, "lhnet1")
	if got, err := InterfaceAddress("lhnet1"); err == nil {
		t.Errorf("%q of no object", got)
	}
}
