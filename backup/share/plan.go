package share

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ankole.storage/backup/target"
)

// Options where the URL of a target has none. A server that goes away costs minutes with them, not
// forever, and names of files are a second old at most, which locks count on.
const (
	nfsOptions  = "actimeo=1,soft,timeo=300,retry=2"
	cifsOptions = "soft"
)

// nfsVersions are tried in this order.
var nfsVersions = []string{"4.2", "4.1", "4.0"}

// alwaysFlags: a backup store has no programs and no devices.
const alwaysFlags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// flagOptions are those that mount(2) takes as flags. Those of alwaysFlags stay whatever is said.
var flagOptions = map[string]uintptr{"ro": unix.MS_RDONLY, "sync": unix.MS_SYNCHRONOUS,
	"dirsync": unix.MS_DIRSYNC, "noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME,
	"relatime": unix.MS_RELATIME, "strictatime": unix.MS_STRICTATIME}

// notForKernels are options that programs read: mount, mount.nfs, mount.cifs and systemd.
var notForKernels = []string{"defaults", "rw", "async", "atime", "diratime", "suid", "nosuid", "dev", "nodev", "exec",
	"noexec", "auto", "noauto", "user", "nouser", "users", "nofail", "_netdev", "bg", "fg", "retry"}

// ErrOption: an option of a share cannot be used.
var ErrOption = errors.New("this option cannot be used")

// attempt is a call of mount(2).
type attempt struct {
	fsType, source string
	flags          uintptr
	// data may have a password in it.
	data string
}

// options are those of a URL, split.
type options struct {
	flags uintptr
	data  []string
}

// has says whether one of the keys is among the options.
func (o *options) has(keys ...string) bool {
	return slices.ContainsFunc(o.data, func(option string) bool { return slices.Contains(keys, key(option)) })
}

func key(option string) string {
	k, _, _ := strings.Cut(option, "=")
	return k
}

// split reads options of a URL. Those of refused are for us to set.
func split(text string, refused ...string) (options, error) {
	o := options{flags: alwaysFlags}
	for option := range strings.SplitSeq(text, ",") {
		option = strings.TrimSpace(option)
		flag, isFlag := flagOptions[option]
		switch k := key(option); {
		case option == "" || slices.Contains(notForKernels, k):
		case isFlag:
			o.flags |= flag
		case slices.Contains(refused, k):
			return o, fmt.Errorf("%w: %.40q", ErrOption, k)
		default:
			o.data = append(o.data, option)
		}
	}
	return o, nil
}

// server is the address to connect to see whether the server of a share is there.
func server(t *target.Target) string {
	port := "2049"
	if t.Kind == target.CIFS {
		port = "445"
	}
	for option := range strings.SplitSeq(t.Options, ",") {
		if value, ok := strings.CutPrefix(strings.TrimSpace(option), "port="); ok {
			port = value
		}
	}
	return net.JoinHostPort(t.Host, port)
}

// plan says how to mount a share whose server is at address: one attempt after the other.
func plan(t *target.Target, c target.Credentials, address netip.Addr) ([]attempt, error) {
	if t.Kind == target.CIFS {
		return planCIFS(t, c, address)
	}
	return planNFS(t, address)
}

func planNFS(t *target.Target, address netip.Addr) ([]attempt, error) {
	text := t.Options
	if text == "" {
		text = nfsOptions
	}
	o, err := split(text, "addr", "clientaddr", "mountaddr")
	if err != nil {
		return nil, fmt.Errorf("%s: nfsOptions: %w", t, err)
	}
	for _, option := range o.data {
		k, value, _ := strings.Cut(option, "=")
		switch {
		case (k == "vers" || k == "nfsvers") && value != "4" && !strings.HasPrefix(value, "4."):
			return nil, fmt.Errorf("%s: nfsOptions: %w: its version is none of 4, 4.0, 4.1 and 4.2", t, ErrOption)
		case k == "proto" && value != "tcp" && value != "tcp6", k == "udp", k == "rdma":
			return nil, fmt.Errorf("%s: nfsOptions: %w: %.40q, a server is reached by TCP", t, ErrOption, k)
		}
	}
	one := attempt{fsType: "nfs4", source: bracketed(t.Host) + ":" + t.Path, flags: o.flags}
	rest := append(o.data, "addr="+address.String())
	if o.has("vers", "nfsvers", "minorversion") {
		one.data = strings.Join(rest, ",")
		return []attempt{one}, nil
	}
	var all []attempt
	for _, version := range nfsVersions {
		one.data = strings.Join(append([]string{"nfsvers=" + version}, rest...), ",")
		all = append(all, one)
	}
	return all, nil
}

func bracketed(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

func planCIFS(t *target.Target, c target.Credentials, address netip.Addr) ([]attempt, error) {
	text := t.Options
	if text == "" {
		text = cifsOptions
	}
	o, err := split(text, "ip", "addr", "unc", "source", "prefixpath", "user", "username", "pass", "password",
		"password2", "credentials", "cred")
	if err != nil {
		return nil, fmt.Errorf("%s: cifsOptions: %w: user and password are in the Secret", t, err)
	}
	user, password := c[target.KeyCIFSUser], c[target.KeyCIFSPassword]
	if user == "" && !o.has("guest", "sec") {
		return nil, fmt.Errorf("%s: the Secret has no %s", t, target.KeyCIFSUser)
	}
	if strings.ContainsAny(user+password, "\x00\n") {
		return nil, fmt.Errorf("%s: %s or %s of the Secret has a character that none may have", t, target.KeyCIFSUser,
			target.KeyCIFSPassword)
	}
	if strings.Contains(user, ",") {
		return nil, fmt.Errorf("%s: %s of the Secret has a comma", t, target.KeyCIFSUser)
	}
	if strings.Contains(t.Host+t.Path, ",") { // the kernel would read options behind it
		return nil, fmt.Errorf("%s: a server and a path of SMB with a comma cannot be mounted", t)
	}
	name, folder, _ := strings.Cut(strings.TrimPrefix(t.Path, "/"), "/")
	source := "//" + t.Host + "/" + name
	// Kernels before 5.11 read the share from unc, later ones from the source.
	data := []string{"ip=" + address.String(), `unc=\\` + t.Host + `\` + name}
	if folder != "" {
		// Later kernels take the folder from the source, as mount.cifs has it there too.
		source += "/" + folder
		data = append(data, "prefixpath="+folder)
	}
	if user != "" {
		// A comma within a password is doubled.
		data = append(data, "user="+user, "pass="+strings.ReplaceAll(password, ",", ",,"))
	}
	data = append(data, o.data...)
	return []attempt{{fsType: "cifs", source: source, flags: o.flags, data: strings.Join(data, ",")}}, nil
}

// another says whether the next attempt may do what this error has refused: another version.
func another(err error) bool {
	return errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EINVAL)
}

// explain says what an error of mount(2) means, and what to do.
func explain(t *target.Target, err error) error {
	fsType, module := "nfs4", "nfs"
	if t.Kind == target.CIFS {
		fsType, module = "cifs", "cifs"
	}
	text := ""
	switch {
	case errors.Is(err, unix.ENODEV):
		text = "the kernel of this node has no file system " + fsType + ": load its module " + module + " on each node"
	case errors.Is(err, unix.EPERM):
		text = "the server refuses this node, or the Pod is not privileged"
	case errors.Is(err, unix.EACCES):
		text = "the server refuses this node, or its user and password"
	case errors.Is(err, unix.ENOENT):
		text = "the server has no such path"
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EOPNOTSUPP): // SMB 2.0 and older
		text = "the server and the kernel of this node have no version of the protocol in common"
	case errors.Is(err, unix.EINVAL):
		text = "the kernel of this node does not take an option: its log says which"
	default:
		return fmt.Errorf("mount %s: %w", t, err)
	}
	return fmt.Errorf("mount %s: %w: %s", t, err, text)
}
