package process

import (
	"fmt"
	"maps"
	"net"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Spec says what to start. In a Status, Args includes the generated port arguments and Environment
// is nil.
type Spec struct {
	// Name is unique in the Manager, and names the log file.
	Name string
	// Binary is an absolute path as the Pod sees it.
	Binary string
	Args   []string
	// PortCount is how many contiguous ports to reserve.
	PortCount int
	// PortArgs are argument prefixes: prefix i gets port i appended and is split at commas into
	// arguments.
	PortArgs []string
	// Environment is added to the instance manager's own. It may hold secrets: never logged, never
	// given back.
	Environment map[string]string
	// Order is the order that the process was made for, as the client names it; it means nothing
	// here, is given back as it came, and told to the process.
	Order string
}

const (
	// maxNameLen leaves room for the suffixes of log files within a file name (255 bytes).
	maxNameLen = 240
	// maxArgs and maxVariables are far above what an engine needs (about 20 arguments, one per
	// replica more).
	maxArgs      = 1024
	maxVariables = 256
	// maxArgsSize bounds arguments, variables and order together, in bytes: they are kept and sent to
	// every client that lists. The kernel takes no single one over 128 KiB.
	maxArgsSize = 128 << 10
)

// validName is a file name without surprises; the names of Kubernetes objects are a subset.
var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

var validVariable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// orderVariable tells an instance the order that it was made for. An engine names it to the
// witness, which grants nothing to a process whose order is not the newest.
const orderVariable = "ANKOLE_ORDER"

// predecessorVariable tells an engine that is to follow another one where that listens.
const predecessorVariable = "ANKOLE_PREDECESSOR"

// reservedVariables are set by the instance manager for each instance.
var reservedVariables = []string{orderVariable, predecessorVariable, "ANKOLE_WITNESS", "ANKOLE_KEEPER",
	"ANKOLE_MOUNTS", "ANKOLE_TLS_DIR", "ANKOLE_TLS", "POD_IP", "POD_NAME", strayVariable}

const (
	// engineBinary is the name of the program in the folder of an engine image.
	engineBinary = "longhorn"
	// ownVariables is how the names of variables begin that instances are told something by. Others
	// decide what a program is, and what the programs are that it calls.
	ownVariables = "ANKOLE_"
)

// checkOrigin finds what is no engine of an image, or would be something else than that.
func (s *Spec) checkOrigin(binaries []string) error {
	folder := path.Dir(path.Dir(s.Binary))
	if s.Binary != path.Clean(s.Binary) || !slices.Contains(binaries, folder) || path.Base(s.Binary) != engineBinary {
		return fmt.Errorf("%w: process %s: binary %q is not that of an engine image, %s", ErrInvalid, s.Name, s.Binary,
			path.Join(binaries[0], "IMAGE", engineBinary))
	}
	for key := range s.Environment {
		if !strings.HasPrefix(key, ownVariables) {
			return fmt.Errorf("%w: process %s: environment variable %s is none that an engine or a replica is told something by "+
				"(%s…)", ErrInvalid, s.Name, key, ownVariables)
		}
	}
	return nil
}

// check finds what can never be started, and with the folders of engine images what may not be.
func (s *Spec) check(binaries []string) error {
	switch {
	case s.Name == "":
		return fmt.Errorf("%w: process name is missing", ErrInvalid)
	case len(s.Name) > maxNameLen || !validName.MatchString(s.Name):
		return fmt.Errorf(
			"%w: process name %q: want at most %d letters, digits, '.', '_' and '-', beginning with a letter or digit",
			ErrInvalid, s.Name, maxNameLen)
	case s.Binary == "":
		return fmt.Errorf("%w: process %s: binary is missing", ErrInvalid, s.Name)
	case !path.IsAbs(s.Binary):
		return fmt.Errorf("%w: process %s: binary %q is not an absolute path", ErrInvalid, s.Name, s.Binary)
	case s.PortCount < 0 || s.PortCount > 65535:
		return fmt.Errorf("%w: process %s: port count %d is not in 0..65535", ErrInvalid, s.Name, s.PortCount)
	case len(s.PortArgs) > s.PortCount:
		return fmt.Errorf("%w: process %s: %d port arguments for %d ports", ErrInvalid, s.Name, len(s.PortArgs), s.PortCount)
	case len(s.Args) > maxArgs:
		return fmt.Errorf("%w: process %s: %d arguments, at most %d are allowed", ErrInvalid, s.Name, len(s.Args), maxArgs)
	case len(s.Environment) > maxVariables:
		return fmt.Errorf("%w: process %s: %d environment variables, at most %d are allowed",
			ErrInvalid, s.Name, len(s.Environment), maxVariables)
	case s.size() > maxArgsSize:
		return fmt.Errorf("%w: process %s: arguments, environment and order of %d bytes, at most %d are allowed", ErrInvalid,
			s.Name, s.size(), maxArgsSize)
	}
	for _, arg := range slices.Concat([]string{s.Binary}, s.Args, s.PortArgs) {
		if strings.ContainsRune(arg, 0) {
			return fmt.Errorf("%w: process %s: argument %q holds a zero byte", ErrInvalid, s.Name, arg)
		}
	}
	for key, value := range s.Environment {
		if !validVariable.MatchString(key) || strings.ContainsRune(value, 0) {
			return fmt.Errorf("%w: process %s: environment variable %q is malformed", ErrInvalid, s.Name, key)
		}
		if slices.Contains(reservedVariables, key) {
			return fmt.Errorf("%w: process %s: environment variable %s is set by the instance manager", ErrInvalid, s.Name, key)
		}
	}
	if len(binaries) == 0 {
		return nil
	}
	return s.checkOrigin(binaries)
}

// followArg tells an engine to follow the one that runs. The name is the reference's.
const followArg = "--upgrade"

// follows reports whether the process is an engine that is to follow another one while the volume
// is in use.
func (s *Spec) follows() bool { return slices.Contains(s.Args, followArg) }

// size is that of all texts but the name.
func (s *Spec) size() int {
	n := len(s.Binary) + len(s.Order)
	for _, arg := range slices.Concat(s.Args, s.PortArgs) {
		n += len(arg)
	}
	for key, value := range s.Environment {
		n += len(key) + len(value)
	}
	return n
}

// withPorts returns the arguments with the port arguments appended, and the address the process
// listens at with its first port. A wildcard host in a port argument becomes podIP, if one is
// known.
func (s *Spec) withPorts(ports PortRange, podIP string) (args []string, listen string) {
	args = slices.Clone(s.Args)
	for i, prefix := range s.PortArgs {
		port := strconv.Itoa(ports.Start + i)
		for _, arg := range strings.Split(prefix+port, ",") {
			host, p, err := net.SplitHostPort(arg)
			if err != nil || p != port {
				args = append(args, arg)
				continue
			}
			if isWildcard(host) && podIP != "" {
				host = podIP
				arg = net.JoinHostPort(host, port)
			}
			args = append(args, arg)
			if i == 0 && !isWildcard(host) {
				listen = arg
			}
		}
	}
	if listen == "" && ports.Len() > 0 {
		host := "localhost"
		if podIP != "" {
			host = podIP
		}
		listen = net.JoinHostPort(host, strconv.Itoa(ports.Start))
	}
	return args, listen
}

func isWildcard(host string) bool {
	if host == "" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsUnspecified()
}

// environment returns the variables of the process: those of the instance manager, base, then its
// own.
func (s *Spec) environment(inherited, base []string) []string {
	env := slices.Concat(inherited, base)
	for _, key := range slices.Sorted(maps.Keys(s.Environment)) {
		env = append(env, key+"="+s.Environment[key])
	}
	if s.Order != "" {
		env = append(env, orderVariable+"="+s.Order)
	}
	return env
}

// IsEngine tells an engine's name from a replica's: engines are called <volume>-e-<suffix without
// dashes>.
func IsEngine(name string) bool {
	i := strings.LastIndex(name, "-")
	return i >= 0 && strings.HasSuffix(name[:i], "-e") && i+1 < len(name)
}
