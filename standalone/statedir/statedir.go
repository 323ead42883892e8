// Package statedir owns the one folder in which a standalone cluster keeps everything.
//
//	lock               flock of the running instance; its text is the pid
//	ports.json         ports chosen once, so that addresses survive a restart
//	kubeconfig         for the user (group system:masters)
//	control.sock       commands for tests: stop, kill, start a node
//	etcd/              the cluster's objects
//	pki/               certificates
//	logs/              logs of the control plane and of the node agents
//	nodes/<node>/root  what Pods of that node see as the host's root directory
//	nodes/<node>/pods  volumes of running Pods
//	nodes/<node>/logs  output of containers
package statedir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ErrInUse means that another process serves the folder.
var ErrInUse = errors.New("state folder is in use")

const (
	// firstPort and lastPort bound the ports chosen here: below the kernel's range for outgoing
	// connections, so that a kept port is not taken by somebody's client socket while the cluster
	// is down.
	firstPort = 20001
	lastPort  = 32000
	// portTries random picks fail together only on a machine that has no room anyway.
	portTries = 64
)

// Dir is a locked state folder.
type Dir struct {
	path string
	lock *os.File
}

// Open makes the folder if needed and locks it for this process until Close. The kernel drops the
// lock when the process ends, however it ends.
func Open(path string) (*Dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("state folder %s: %w", path, err)
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return nil, fmt.Errorf("state folder: %w (choose another with --dir)", err)
	}
	// One folder must have one name: the lock, the orphan markers and the recorded mounts compare
	// paths.
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	if err := ours(abs); err != nil {
		return nil, err
	}
	f, holder, err := Lock(abs)
	if errors.Is(err, ErrInUse) {
		pid := "unknown"
		if holder > 0 {
			pid = strconv.Itoa(holder)
		}
		return nil, fmt.Errorf("%w: %s is served by another ankole-standalone (pid %s); "+
			"stop that one (Ctrl-C in its terminal, or kill %[3]s), or choose another folder with --dir and other "+
			"addresses with --api-port and --node-network", err, abs, pid)
	}
	if err != nil {
		return nil, fmt.Errorf("state folder: %w (choose another with --dir)", err)
	}
	return &Dir{path: abs, lock: f}, nil
}

// ours refuses a folder that somebody else can enter or change: it holds keys, and directories of
// replicas.
func ours(dir string) error {
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err != nil {
		return fmt.Errorf("state folder %s: %w", dir, err)
	}
	if me := os.Geteuid(); int(st.Uid) != me {
		return fmt.Errorf("state folder %s belongs to user %d, who could change what user %d runs from it: "+
			"choose another folder with --dir", dir, st.Uid, me)
	}
	if mode := st.Mode & 0o777; mode&0o077 != 0 {
		return fmt.Errorf("state folder %s is open to others (mode %03o): chmod 700 %[1]s, or choose another folder with --dir",
			dir, mode)
	}
	return nil
}

// Lock locks a folder for this process, and notes the process in it. The kernel drops the lock when
// the file is closed or the process ends, however it ends. ErrInUse: the process holder has it, 0
// while that is about to note itself.
func Lock(dir string) (f *os.File, holder int, err error) {
	f, err = os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, 0, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		text, _ := io.ReadAll(f)
		_ = f.Close()
		holder, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return nil, holder, ErrInUse
	}
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, fmt.Errorf("lock: %w", err)
	}
	return f, 0, nil
}

// Close releases the folder.
func (d *Dir) Close() error { return d.lock.Close() }

// Path joins elements to the folder's absolute path.
func (d *Dir) Path(elem ...string) string {
	return filepath.Join(append([]string{d.path}, elem...)...)
}

// Port returns the port kept under name, choosing a free one of the given address the first time. A
// kept port that another process now holds is an error, because clients have written it down.
func (d *Dir) Port(name, host string) (int, error) {
	ports, err := d.ports()
	if err != nil {
		return 0, err
	}
	if p := ports[name]; p != 0 {
		return p, nil
	}
	for range portTries {
		p := firstPort + rand.IntN(lastPort-firstPort)
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(p)))
		if err != nil {
			continue
		}
		_ = l.Close()
		return p, d.KeepPort(name, p)
	}
	return 0, fmt.Errorf("no free port found on %s between %d and %d in %d tries", host, firstPort, lastPort, portTries)
}

// KeepPort records a port under name.
func (d *Dir) KeepPort(name string, port int) error {
	ports, err := d.ports()
	if err != nil {
		return err
	}
	ports[name] = port
	data, err := json.MarshalIndent(ports, "", "  ")
	if err != nil {
		return fmt.Errorf("ports: %w", err)
	}
	return WriteFile(d.Path("ports.json"), append(data, '\n'), 0o600)
}

func (d *Dir) ports() (map[string]int, error) {
	ports := map[string]int{}
	data, err := os.ReadFile(d.Path("ports.json"))
	if errors.Is(err, os.ErrNotExist) {
		return ports, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &ports)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is unreadable (remove it to have new ports chosen): %w", d.Path("ports.json"), err)
	}
	return ports, nil
}

// WriteFile replaces a file as a whole: readers see the old or the new content.
func WriteFile(path string, data []byte, mode os.FileMode) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, data, mode); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// CheckPort says whether host:port can be listened on; flag names what the user can change.
func CheckPort(host string, port int, flag string) error {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("port %d on %s is in use by another program; stop it or choose another with %s", port, host, flag)
	}
	if err != nil {
		return fmt.Errorf("cannot listen on %s:%d (%s): %w", host, port, flag, err)
	}
	return l.Close()
}
