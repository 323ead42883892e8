package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"ankole.storage/controlplane/object/naming"
	"ankole.storage/test/lack"
	"ankole.storage/test/testcluster"
)

// attackVariable of the environment has TestAttack run: tools/attack.sh sets it.
const attackVariable = "ANKOLE_ATTACK"

const (
	// strangersAddress is where those who flood a server come from, others from 127.0.0.1.
	strangersAddress = "127.0.0.77"
	idleConnections  = 3000
	stalledBodies    = 60
	stalledBytes     = 6_500_000
	// heldBytes is the most that a flood may add to the memory of all managers together.
	heldBytes = 400 << 20
)

// flood is what a stranger sends on each of many connections before he stops, and holds them.
type flood struct {
	Address string
	Count   int
	TLS     bool
	Head    string
	Bytes   int // of a body that is not ended
}

// TestAttack is what strangers do to a running cluster, one line for each attempt: who, what he
// wants, whether he got in, and what answered him. ANKOLE_BIN may name programs of an older commit.
func TestAttack(t *testing.T) {
	if os.Getenv(attackVariable) == "" {
		lack.Later(t, "make attack")
	}
	if os.Geteuid() != 0 {
		lack.Skip(t, "only root can be another user")
	}
	c := startWith(t, testcluster.Options{Manager: true, NodeGrace: nodeGrace, Permit: []string{"."}})
	c.create("victim", 64*mib, 3)
	d := c.doors(t, "victim", c.attach("victim", "node-1", 3))
	d.All = true
	attacked := 0
	tell := func(who string, a attempt) {
		attacked++
		verdict := "held"
		if a.In {
			verdict = "GOT IN"
			t.Fail()
		}
		answer := strings.Join(strings.Fields(a.Answer), " ")
		fmt.Printf("%s | %s | %s | %.160s\n", verdict, who, a.Goal, answer)
	}
	node := c.Nodes[1].Address
	for _, f := range floods(node, c.controllers()[1]) {
		tell("uid 65534, "+f.goal, c.flooded(t, f.flood))
	}
	each := func(who string, out []byte) {
		for line := range strings.Lines(string(out)) {
			var a attempt
			if err := json.Unmarshal([]byte(line), &a); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			tell(who, a)
		}
	}
	each("uid 65534 of another network namespace", fromElsewhere(t, d))
	out, err := strangers(t.Context(), t, d).Output()
	each("uid 65534", out)
	if attacked < 200 {
		t.Errorf("%d attempts, %v: this shows nothing", attacked, err)
	}
	tell("anybody, instance manager that may speak plaintext", shellInPlaintext(t))
}

// fromElsewhere has a stranger in a network namespace of his own try what does not end the volume,
// and returns what he prints. Nothing but a cable leads from there to this machine, which takes
// packets for loopback addresses from it.
func fromElsewhere(t *testing.T, d doors) []byte {
	t.Helper()
	const cable, here, there = "ak-stranger", "10.213.77.1", "10.213.77.2"
	d.Files, d.Sockets, d.Awaits = nil, nil, true
	d.HTTP = slices.DeleteFunc(slices.Clone(d.HTTP), func(what string) bool { return strings.HasPrefix(what, "DELETE") })
	stranger := strangers(t.Context(), t, d)
	stranger.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	var out bytes.Buffer
	stranger.Stdout = &out
	in, err := stranger.StdinPipe()
	if err == nil {
		err = stranger.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ns := fmt.Sprintf("/proc/%d/ns/net", stranger.Process.Pid)
	for _, line := range []string{
		fmt.Sprintf("ip link add %s type veth peer name eth0 netns %d", cable, stranger.Process.Pid),
		"ip address add " + here + "/30 dev " + cable, "ip link set " + cable + " up",
		"sysctl -qw net.ipv4.conf." + cable + ".route_localnet=1",
		"nsenter --net=" + ns + " ip address add " + there + "/30 dev eth0",
		"nsenter --net=" + ns + " ip link set eth0 up",
		"nsenter --net=" + ns + " sysctl -qw net.ipv4.conf.eth0.route_localnet=1",
		"nsenter --net=" + ns + " ip route add 127.0.0.0/8 via " + here + " src " + there,
	} {
		words := strings.Fields(line)
		if out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", line, err, out)
		}
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	_ = stranger.Wait() // what it prints is judged
	return out.Bytes()
}

// shellInPlaintext asks an instance manager that serves older managers for a program of another's.
func shellInPlaintext(t *testing.T) attempt {
	c := startWith(t, testcluster.Options{Manager: true, Nodes: 1, Plaintext: true, Permit: []string{"."}})
	address := net.JoinHostPort(c.Nodes[0].Address, "8500")
	c.eventually("the instance manager answers", func(context.Context) error {
		err := knock(address, "/ProcessManagerService/ProcessList", insecure.NewCredentials())
		if status.Code(err) == codes.Unavailable {
			return err
		}
		return nil
	})
	err := knock(address, "/ProcessManagerService/ProcessCreate", insecure.NewCredentials())
	return attempt{"start /bin/sh as root", fmt.Sprint(err), err == nil}
}

type namedFlood struct {
	goal string
	flood
}

// floods are what holds a server up.
func floods(node, controller string) []namedFlood {
	at := func(port string) string {
		if strings.HasPrefix(port, "9") {
			return net.JoinHostPort(controller, port)
		}
		return net.JoinHostPort(node, port)
	}
	post := func(path, host string) string {
		return "POST " + path + " HTTP/1.1\r\nHost: " + host + "\r\nContent-Type: application/json\r\nContent-Length: " +
			strconv.Itoa(stalledBytes+1000) + "\r\n\r\n"
	}
	return []namedFlood{
		{"REST", flood{Address: at("9500"), Count: idleConnections}},
		{"REST, half a header", flood{Address: at("9500"), Count: idleConnections,
			Head: "GET /v1/volumes HTTP/1.1\r\nHost: "}},
		{"REST, bodies", flood{Address: at("9500"), Count: stalledBodies, Head: post("/v1/volumes", at("9500")),
			Bytes: stalledBytes}},
		{"metrics, answers not read", flood{Address: at("9500"), Count: idleConnections,
			Head: "GET /metrics HTTP/1.1\r\nHost: " + at("9500") + "\r\n\r\n"}},
		{"webhooks", flood{Address: at("9502"), Count: idleConnections}},
		{"webhooks, bodies", flood{Address: at("9502"), Count: stalledBodies, TLS: true,
			Head: post(naming.WebhookValidationPath, at("9502")), Bytes: stalledBytes}},
		{"instance manager", flood{Address: at("8500"), Count: idleConnections}},
		{"instance manager, half a greeting", flood{Address: at("8501"), Count: idleConnections,
			Head: "PRI * HTTP/2.0\r\n"}},
	}
}

// flooded has a stranger hold up a server while somebody at another address uses it.
func (c *cluster) flooded(t *testing.T, f flood) attempt {
	t.Helper()
	before := c.managersMemory(t)
	stranger := strangers(t.Context(), t, doors{Flood: &f})
	in, err := stranger.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := stranger.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	held, _ := bufio.NewReader(out).ReadString('\n')
	_, port, err := net.SplitHostPort(f.Address)
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	err = served(f.Address, port == "9500")
	took, more := time.Since(begun), c.managersMemory(t)-before
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	_ = stranger.Wait() // its end is what was wanted
	return attempt{fmt.Sprintf("%s: %d connections, with %d bytes each", f.Address, f.Count, len(f.Head)+f.Bytes),
		fmt.Sprintf("%s; another address is served in %v: %v; %d MiB more", strings.TrimSpace(held),
			took.Round(time.Millisecond), err, more>>20), err != nil || more > heldBytes}
}

// served asks a server what it answers to everybody, TLS its certificate.
func served(address string, plain bool) error {
	if !plain {
		//nolint:gosec // whether it answers is what matters
		c, err := tls.DialWithDialer(&net.Dialer{Timeout: strangerTimeout}, "tcp", address, &tls.Config{
			InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if plaintext := (tls.RecordHeaderError{}); errors.As(err, &plaintext) {
			return nil
		}
		if err != nil {
			return err
		}
		return c.Close()
	}
	_, err := request(&http.Client{Timeout: strangerTimeout}, http.MethodGet, "http://"+address+naming.HealthPath, nil)
	return err
}

// managersMemory is what all managers have of the machine's memory, in bytes.
func (c *cluster) managersMemory(t *testing.T) (sum int64) {
	t.Helper()
	for _, pid := range c.managerProcesses() {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
		if err != nil {
			continue // it has ended
		}
		pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += pages * int64(os.Getpagesize())
	}
	return sum
}

// hold makes the connections, says how many there are, and ends with its input.
func (f *flood) hold() int {
	d := net.Dialer{Timeout: strangerTimeout, LocalAddr: &net.TCPAddr{IP: net.ParseIP(strangersAddress)}}
	body := slices.Repeat([]byte("x"), f.Bytes)
	var held []net.Conn
	refused := 0
	for range f.Count {
		c, err := d.Dial("tcp", f.Address)
		if err == nil && f.TLS {
			c = tls.Client(c, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a stranger has no authority
		}
		if err == nil {
			err = c.SetWriteDeadline(time.Now().Add(time.Second))
		}
		if err == nil && f.Head != "" {
			_, err = io.WriteString(c, f.Head)
		}
		if err == nil && f.Bytes > 0 {
			_, err = c.Write(body)
		}
		if err != nil {
			refused++
		}
		held = append(held, c)
	}
	fmt.Printf("%d refused while they were made\n", refused)
	_, err := io.Copy(io.Discard, os.Stdin)
	for _, c := range held {
		if c != nil {
			_ = c.Close()
		}
	}
	if err != nil {
		return 1
	}
	return 0
}
