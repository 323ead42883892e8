package cli

import (
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest"
	"ankole.storage/rest/access"
	"ankole.storage/rest/resttest"
)

// refusals are the commands that fail without changing anything; what each says is in
// testdata/errors.golden.
const refusals = `
volme list
volume lst
volume
get volumes
describe demo
frobnicate
node schedule off node-1
event list --sort colour
event list --filter colour=red
event list --filter reason
event list --type Warning extra
event list -o xml
volume list --sort nothing
volume describe
volume describe nope
volume get demo nope
volume delete
volume delete demo
volume delete nope --yes
volume detach
volume attach
node describe nope
node scheduling maybe node-1
node scheduling off
node scheduling off nope
node scheduling on node-1
node tag node-1
node tag node-1 --add a_b!
node evict
node evict nope
node delete node-2 --yes
node delete nope --yes
disk list nope
disk add node-1
disk add node-1 disk-1 --path /srv/x
disk add node-1 new
disk add nope new --path /srv/x
disk add node-1 new --path relative
disk add node-1 new --path /srv/x --reserve lots
disk remove node-1
disk remove node-1 nope --yes
disk remove node-1 disk-1 --yes
disk remove node-2 slow --yes
disk scheduling off node-1
disk scheduling perhaps node-1 disk-1
disk scheduling on node-1 nope
disk tag node-1 disk-1
disk tag node-1 nope --add a
disk reserve node-1 disk-1 lots
disk reserve node-1 disk-1
disk evict node-1
disk evict node-1 nope
replica describe nope
replica get nope
replica delete demo
replica delete demo nope --yes
replica delete demo busy-r-11111111 --yes
instance-manager get nope
instance-manager describe nope
engine-image get nope
engine-image describe nope
engine-image delete nope --yes
engine-image create
orphan get nope
orphan delete nope --yes
recurring-job show nope
recurring-job delete nope --yes
setting get nope
setting list --filter nothing=1
snapshot get demo
snapshot delete demo
snapshot delete nope s --yes
apply
apply -f /nowhere/at.yaml
status --nope
status extra
`

// TestErrors compares what every refusal says with the golden file: what failed, which object, what
// to do.
func TestErrors(t *testing.T) {
	b := newBed(t, troubled()...)
	before := b.ok("volume", "list", "-o", "json") + b.ok("node", "list", "-o", "json")
	var all strings.Builder
	for _, line := range strings.Split(strings.TrimSpace(refusals), "\n") {
		r := b.run(strings.Fields(line)...)
		if line != "volume" && r.status == exitOK {
			t.Errorf("%s: %+v", line, r)
		}
		fmt.Fprintf(&all, "$ ankole %s\n%s[%d]\n\n", line, r.err, r.status)
	}
	golden(t, "errors", strings.ReplaceAll(all.String(), b.url, "http://SERVER"))
	if after := b.ok("volume", "list", "-o", "json") + b.ok("node", "list", "-o", "json"); after != before {
		t.Errorf("changed:\n%s", after)
	}
}

// TestHelp: commands in groups, the flags of all.
func TestHelp(t *testing.T) {
	for name, args := range map[string][]string{"help": {"help"}, "help-node": {"help", "node"}, "help-disk": {"disk"}} {
		t.Run(name, func(t *testing.T) {
			r := runArgs(t.Context(), args...)
			if r.status != exitOK || r.err != "" {
				t.Errorf("%+v", r)
			}
			golden(t, name, r.out)
		})
	}
	if r := runArgs(t.Context(), []string{}...); r.out != runArgs(t.Context(), "help").out {
		t.Errorf("without a command: %s", r.out)
	}
}

// TestForbidden: what the caller may not see is left out of the status and named; the rest is
// shown.
func TestForbidden(t *testing.T) {
	web := closedServer(t)
	b := &bed{t: t, url: web}
	t.Setenv(EnvToken, "of-reader")
	if out := b.ok("status"); !strings.Contains(out, "Not shown       orphans, events: no right to list them\n") ||
		!strings.Contains(out, "Volumes         3: ") {
		t.Errorf("%s", out)
	}
	if out := b.ok("volume", "describe", "demo"); !strings.Contains(out, "Events are not shown: ") ||
		!strings.Contains(out, "Volume          demo\n") {
		t.Errorf("%s", out)
	}
	if r := b.run("event", "list"); r.status != exitError || !strings.Contains(r.err, "list events") {
		t.Errorf("%+v", r)
	}
}

// closedServer asks who its callers are: admin and viewer may do everything, reader may read a
// part.
func closedServer(t *testing.T) string {
	t.Helper()
	reviews := &resttest.Reviews{Rights: map[string][]string{"admin": {"*"}, "viewer": {"*"}, "reader": {"list volumes",
		"list nodes", "list engineimages",
		"list instancemanagers", "list settings", "get volumes"}}}
	c := resttest.Client(t, reviews.Funcs(), cluster()...)
	s, err := rest.New(rest.Config{Client: c, Logger: slog.New(slog.DiscardHandler), EngineImage: resttest.Image,
		Judge:    access.NewJudge(c, lh.Namespace, nil),
		Sessions: &access.Sessions{Keys: &access.Keyring{Client: c, Namespace: lh.Namespace}}})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	return web.URL
}

// TestEveryCommand: each has a line of its own, explains itself, and has flags that do not collide
// with those of all commands.
func TestEveryCommand(t *testing.T) {
	var walk func(*cobra.Command)
	seen := 0
	walk = func(c *cobra.Command) {
		seen++
		if c.Short == "" || c.Short[0] < 'A' || c.Short[0] > 'Z' || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: %q is no line of a list", c.CommandPath(), c.Short)
		}
		if path := strings.Fields(c.CommandPath())[1:]; c.Name() != "standalone" { // its flags are another program's
			r := runArgs(t.Context(), append(path, "--help")...)
			if r.status != exitOK || !strings.Contains(r.out, c.UseLine()) {
				t.Errorf("%s --help: %+v", c.CommandPath(), r)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	for _, c := range newApp(io.Discard, io.Discard).root().Commands() {
		if c.GroupID == "" {
			t.Errorf("%s is in no group", c.Name())
		}
		walk(c)
	}
	if seen < 60 {
		t.Errorf("only %d commands", seen)
	}
}
