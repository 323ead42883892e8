package process

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestSpecOrigin: an instance manager starts engines of images and nothing else, whoever asks.
func TestSpecOrigin(t *testing.T) {
	folder := []string{"/engine-binaries", "/host/var/lib/longhorn/engine-binaries"}
	good := Spec{Name: "demo-r-1a2b3c4d", Binary: "/engine-binaries/ankole-engine-dev/longhorn",
		Environment: map[string]string{"ANKOLE_VOLUME_UUID": "u"}}
	onHost := good
	onHost.Binary = "/host/var/lib/longhorn/engine-binaries/ankole-engine-dev/longhorn"
	for _, s := range []Spec{good, onHost} {
		if err := s.check(folder); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func(*Spec){
		"a shell":              func(s *Spec) { s.Binary = "/bin/sh" },
		"on the host":          func(s *Spec) { s.Binary = "/host/engine-binaries/ankole-engine-dev/longhorn" },
		"beside it":            func(s *Spec) { s.Binary = "/engine-binaries/ankole-engine-dev/sh" },
		"below it":             func(s *Spec) { s.Binary = "/engine-binaries/a/b/longhorn" },
		"above it":             func(s *Spec) { s.Binary = "/engine-binaries/longhorn" },
		"out of it":            func(s *Spec) { s.Binary = "/engine-binaries/../tmp/x/longhorn" },
		"up from it":           func(s *Spec) { s.Binary = "/engine-binaries/../longhorn" },
		"written otherwise":    func(s *Spec) { s.Binary = "/engine-binaries//x/longhorn" },
		"other libraries":      func(s *Spec) { s.Environment = map[string]string{"LD_PRELOAD": "/tmp/x.so"} },
		"other programs":       func(s *Spec) { s.Environment = map[string]string{"PATH": "/tmp"} },
		"the host's directory": func(s *Spec) { s.Environment = map[string]string{"ANKOLE_MOUNTS": "{}"} },
	} {
		s := good
		change(&s)
		if err := s.check(folder); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSpecCheck(t *testing.T) {
	good := Spec{Name: "demo-r-1a2b3c4d", Binary: "/bin/true"}
	if err := good.check(nil); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Spec){
		"name is missing":         func(s *Spec) { s.Name = "" },
		"a path as name":          func(s *Spec) { s.Name = "../../etc/passwd" },
		"a hidden file as name":   func(s *Spec) { s.Name = ".demo" },
		"name with a zero byte":   func(s *Spec) { s.Name = "a\x00b" },
		"name too long":           func(s *Spec) { s.Name = strings.Repeat("a", maxNameLen+1) },
		"binary is missing":       func(s *Spec) { s.Binary = "" },
		"binary is relative":      func(s *Spec) { s.Binary = "true" },
		"negative port count":     func(s *Spec) { s.PortCount = -1 },
		"huge port count":         func(s *Spec) { s.PortCount = 1 << 30 },
		"port argument too many":  func(s *Spec) { s.PortArgs = []string{"--listen,:"} },
		"zero byte in argument":   func(s *Spec) { s.Args = []string{"a\x00"} },
		"too many arguments":      func(s *Spec) { s.Args = make([]string, maxArgs+1) },
		"an order without bound":  func(s *Spec) { s.Order = strings.Repeat("a", maxArgsSize) },
		"malformed variable":      func(s *Spec) { s.Environment = map[string]string{"A=B": ""} },
		"empty variable name":     func(s *Spec) { s.Environment = map[string]string{"": "x"} },
		"zero byte in a variable": func(s *Spec) { s.Environment = map[string]string{"A": "\x00"} },
		"the witness of another":  func(s *Spec) { s.Environment = map[string]string{"ANKOLE_WITNESS": "unix:/tmp/x"} },
	} {
		s := good
		change(&s)
		if err := s.check(nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPortArguments is the table of what a port argument becomes, and where the instance is then
// asked for readiness.
func TestPortArguments(t *testing.T) {
	for _, row := range []struct {
		portArgs []string
		ports    PortRange
		podIP    string
		want     string // arguments after "replica", joined
		listen   string
	}{
		{[]string{"--listen,127.0.1.2:"}, PortRange{10000, 10009}, "127.0.1.2", "--listen 127.0.1.2:10000",
			"127.0.1.2:10000"},
		{[]string{"--listen,0.0.0.0:"}, PortRange{10000, 10009}, "127.0.1.2", "--listen 127.0.1.2:10000", "127.0.1.2:10000"},
		{[]string{"--listen,:"}, PortRange{10000, 10000}, "127.0.1.2", "--listen 127.0.1.2:10000", "127.0.1.2:10000"},
		{[]string{"--listen,[::]:"}, PortRange{10000, 10000}, "fd00::7", "--listen [fd00::7]:10000", "[fd00::7]:10000"},
		// Another address of the Pod (a storage network) stays.
		{[]string{"--listen,10.1.2.3:"}, PortRange{10000, 10000}, "127.0.1.2", "--listen 10.1.2.3:10000", "10.1.2.3:10000"},
		// Without a known Pod address nothing is mapped.
		{[]string{"--listen,0.0.0.0:"}, PortRange{10000, 10000}, "", "--listen 0.0.0.0:10000", "localhost:10000"},
		{[]string{"--listen,localhost:"}, PortRange{10000, 10000}, "", "--listen localhost:10000", "localhost:10000"},
		// A second argument gets the second port.
		{[]string{"--listen,:", "--data,:"}, PortRange{10000, 10001}, "127.0.1.2",
			"--listen 127.0.1.2:10000 --data 127.0.1.2:10001", "127.0.1.2:10000"},
		{[]string{"--port="}, PortRange{10000, 10000}, "127.0.1.2", "--port=10000", "127.0.1.2:10000"},
		{nil, PortRange{10000, 10000}, "127.0.1.2", "", "127.0.1.2:10000"},
		{nil, PortRange{}, "127.0.1.2", "", ""},
	} {
		s := Spec{Args: []string{"replica"}, PortArgs: row.portArgs, PortCount: row.ports.Len()}
		args, listen := s.withPorts(row.ports, row.podIP)
		want := append([]string{"replica"}, strings.Fields(row.want)...)
		if !slices.Equal(args, want) || listen != row.listen {
			t.Errorf("%v at %s: %q, %s", row.portArgs, row.podIP, args, listen)
		}
	}
}

func TestIsEngine(t *testing.T) {
	for name, want := range map[string]bool{
		"demo-e-0": true, "demo-e-1a2b3c4d": true, "a-e-b-e-1": true,
		"demo-r-1a2b3c4d": false, "demo-e-r-1a2b3c4d": false, "demo-e-": false, "demo": false, "": false, "-e-1": true,
	} {
		if IsEngine(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}
