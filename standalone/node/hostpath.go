package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// deviceRoot is the path at which Pods expect the block devices of volumes.
const deviceRoot = "/dev/longhorn"

// hostMap says where a path of the node's host really is. A process node's host is a directory,
// except for what only the kernel can provide. The first match of the longest prefix wins.
func (a *Agent) hostMap() map[string]string {
	return map[string]string{
		"/":        a.cfg.Root(),
		"/dev":     "/dev",
		deviceRoot: a.cfg.DeviceDir,
		"/proc":    "/proc",
		"/sys":     "/sys",
	}
}

// resolveHost finds the real place of a host path.
func (a *Agent) resolveHost(path string) string {
	path = filepath.Clean("/" + path)
	best := "/"
	m := a.hostMap()
	for prefix := range m {
		if len(prefix) > len(best) && within(path, prefix) {
			best = prefix
		}
	}
	return filepath.Join(m[best], strings.TrimPrefix(path, best))
}

// below lists the entries of the host map strictly under a host path: a Pod that mounts /dev must
// also be told where /dev/longhorn is.
func (a *Agent) below(path string) map[string]string {
	path = filepath.Clean("/" + path)
	out := map[string]string{}
	for prefix, real := range a.hostMap() {
		if prefix != path && within(prefix, path) {
			out[strings.TrimPrefix(prefix, strings.TrimSuffix(path, "/"))] = real
		}
	}
	return out
}

// within says whether path is prefix or lies under it.
func within(path, prefix string) bool {
	return prefix == "/" || path == prefix || strings.HasPrefix(path, prefix+"/")
}

// prepareHostPath makes or checks the path according to its type, as a kubelet does before it
// mounts.
func prepareHostPath(real string, src *v1.HostPathVolumeSource) error {
	kind := v1.HostPathUnset
	if src.Type != nil {
		kind = *src.Type
	}
	fi, err := os.Stat(real)
	missing := os.IsNotExist(err)
	if err != nil && !missing {
		return fmt.Errorf("hostPath %s: %w", src.Path, err)
	}
	switch {
	case missing && (kind == v1.HostPathUnset || kind == v1.HostPathDirectoryOrCreate):
		return wrapHostPath(src.Path, os.MkdirAll(real, 0o755))
	case missing && kind == v1.HostPathFileOrCreate:
		return wrapHostPath(src.Path, touch(real))
	case missing:
		return fmt.Errorf("hostPath type check failed: %s does not exist (on this node it stands for %s)", src.Path, real)
	}
	if want, ok := modeOf[kind]; ok && fi.Mode().Type()&^os.ModeCharDevice != want&^os.ModeCharDevice {
		return fmt.Errorf("hostPath type check failed: %s is not a %s", src.Path, kind)
	}
	return nil
}

// modeOf is the file type that each checked hostPath type asks for.
var modeOf = map[v1.HostPathType]os.FileMode{
	v1.HostPathDirectory:         os.ModeDir,
	v1.HostPathDirectoryOrCreate: os.ModeDir,
	v1.HostPathFile:              0,
	v1.HostPathFileOrCreate:      0,
	v1.HostPathSocket:            os.ModeSocket,
	v1.HostPathCharDev:           os.ModeDevice,
	v1.HostPathBlockDev:          os.ModeDevice,
}

func wrapHostPath(path string, err error) error {
	if err != nil {
		return fmt.Errorf("hostPath %s: %w", path, err)
	}
	return nil
}

func touch(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}
