// Package hostpath turns the path a Pod sees into the path to open.
//
// The programs of the system are written for Pods: they are told paths such as
// /host/var/lib/longhorn or /engine-binaries, which exist because the kubelet mounts directories of
// the host there. On a process node there is no mount namespace; instead the environment variable
// ANKOLE_MOUNTS says which real directory stands for which path:
//
//	ANKOLE_MOUNTS={"/host":"/srv/nodes/1/root","/engine-binaries":"/srv/nodes/1/root/var/lib/longhorn/engine-binaries"}
//
// The longest prefix of whole path elements wins. Without the variable every path means itself.
// Children inherit the variable and with it the same view.
//
// A program calls Resolve at the last moment, where a file is opened. What it logs, reports or
// stores is the path of the Pod, so that the same words are used whether or not there is a mount
// namespace.
package hostpath

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
)

// Variable is the name of the environment variable that holds the mounts.
const Variable = "ANKOLE_MOUNTS"

// Mounts maps absolute paths as a Pod sees them to real directories. The zero value maps nothing.
type Mounts struct {
	// prefixes are the keys of real, the longest first.
	prefixes []string
	real     map[string]string
}

// New returns mounts from a map of clean or unclean absolute paths. Two keys that mean the same
// path, and paths that are not absolute, are errors.
func New(mounts map[string]string) (Mounts, error) {
	m := Mounts{real: make(map[string]string, len(mounts))}
	for pod, host := range mounts {
		if !path.IsAbs(pod) || !path.IsAbs(host) {
			return Mounts{}, fmt.Errorf("mount %q on %q: both must be absolute paths", host, pod)
		}
		pod = path.Clean(pod)
		if _, twice := m.real[pod]; twice {
			return Mounts{}, fmt.Errorf("mount on %q is given twice", pod)
		}
		m.real[pod] = path.Clean(host)
	}
	m.prefixes = slices.SortedFunc(maps.Keys(m.real), func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return m, nil
}

// Parse returns the mounts in the JSON text of the environment variable. Empty text gives no
// mounts.
func Parse(text string) (Mounts, error) {
	if text == "" {
		return Mounts{}, nil
	}
	var mounts map[string]string
	if err := json.Unmarshal([]byte(text), &mounts); err != nil {
		return Mounts{}, fmt.Errorf("%s is not a JSON object from path to directory: %w", Variable, err)
	}
	m, err := New(mounts)
	if err != nil {
		return Mounts{}, fmt.Errorf("%s: %w", Variable, err)
	}
	return m, nil
}

// Resolve returns the path to open for a path as a Pod sees it. The path is cleaned first, so that
// no .. leads out of a mount unseen. A relative path is returned as it is: it is relative to the
// same working directory in either view.
func (m Mounts) Resolve(podPath string) string {
	if len(m.prefixes) == 0 || !path.IsAbs(podPath) {
		return podPath
	}
	clean := path.Clean(podPath)
	for _, prefix := range m.prefixes {
		if rest, ok := below(clean, prefix); ok {
			return path.Join(m.real[prefix], rest)
		}
	}
	return clean
}

// below reports whether a clean path is a clean prefix or lies below it, and returns what follows
// the prefix.
func below(clean, prefix string) (rest string, ok bool) {
	if prefix == "/" {
		return clean, true
	}
	rest, ok = strings.CutPrefix(clean, prefix)
	return rest, ok && (rest == "" || rest[0] == '/')
}

var fromEnvironment = sync.OnceValues(func() (Mounts, error) { return Parse(os.Getenv(Variable)) })

// Check returns an error if the environment variable cannot be read. Programs call it when they
// start.
func Check() error {
	_, err := fromEnvironment()
	return err
}

// Resolve is Mounts.Resolve with the mounts of this process's environment, which are read once. A
// variable that cannot be read panics, as going on would touch the wrong files; see Check.
func Resolve(podPath string) string {
	m, err := fromEnvironment()
	if err != nil {
		panic(err)
	}
	return m.Resolve(podPath)
}
