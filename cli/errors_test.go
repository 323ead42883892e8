package cli

import (
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest"
	"ankole.storage/rest/access"
	"ankole.storage/rest/resttest"
	"ankole.storage/rest/serve"
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
backing-image list --filter nothing=1
backing-image get nope
backing-image describe nope
backing-image delete nope --yes
backing-image create
backing-image create new
backing-image create new --url http://h/i --file x
backing-image create new --file nope
backing-image create new --url http://h/i --from-volume v
backing-image create new --url http://h/i --snapshot s
backing-image create new --from-volume v --format vmdk
backing-image create new --from-volume v --from-image i
backing-image create new --url http://h/i --encrypt k
backing-image create new --from-image i --encrypt k --decrypt k
backing-image create new --url http://127.0.0.1/i
backing-image upload nope
backing-image upload nope x
backing-image download nope
backing-image download nope x
backing-image-backup list --filter nothing=1
backing-image-backup get nope
backing-image-backup create
backing-image-backup create nope
backing-image-backup restore nope
backing-image-backup verify nope
backing-image-backup verify --bandwidth -1
backing-image-backup verify --target second
backing-image-backup delete nope --yes
recurring-job show nope
recurring-job delete nope --yes
setting get nope
setting list --filter nothing=1
snapshot get demo
snapshot delete demo
snapshot delete nope s --yes
status --nope
status extra
version extra
demo extra
demo proposals extra
node get nope
node list --filter nothing=1
node set-cpu node-1
node set-cpu node-1 lots
node set-cpu nope 100
node set-cpu node-1 100 --type shared
disk list --sort nothing
engine-image list --filter nothing=1
instance-manager list --sort nothing
orphan list --sort nothing
replica list nope
replica list --sort nothing
replica logs nope
engine logs nope
replica check /nowhere/at
replica export /nowhere/at
replica export /nowhere/at /nowhere/image
replica hash /nowhere/at
replica inspect
replica inspect /nowhere/at
recurring-job list --sort nothing
recurring-job of nope
recurring-job create
recurring-job create new --cron @daily
recurring-job create new --task snapshot --cron @daily --label nothing
recurring-job update nope --retain 3
recurring-job update nope
recurring-job attach demo
recurring-job attach nope x
recurring-job detach nope x
setting set nope 1
setting set log-level
setting set log-level Loud
setting set replica-auto-balance sometimes
backup create demo
backup create demo none
backup list
backup get nope
backup restore nope new
backup verify nope
backup verify demo --target second
backup verify --target second
backup verify a b
backup verify demo --bandwidth -1
backup delete nope --yes
backup-target set nope --url s3://b@r/
backup-target list --sort nothing
backup-target sync nope
snapshot create
snapshot create nope
snapshot create demo a b
snapshot list nope
snapshot list demo --sort nothing
snapshot purge nope
snapshot purge demo
snapshot revert demo
snapshot revert nope s
snapshot revert demo s
volume accept-backup-damage demo
volume accept-backup-damage nope
volume accept-data-loss nope
volume create
volume create new
volume create new --size lots
volume create new --size -1
volume create new --size 1Gi --replicas 99
volume create BAD/NAME --size 1Gi
volume create new --size 1Gi --data-locality somewhere
volume create new --size 1Gi --node-tag nope
volume create new --from nope
volume create demo --size 1Gi
volume attach nope
volume attach demo --node nope
volume detach nope
volume expand demo
volume expand demo --size lots
volume expand demo --size 512Mi
volume expand nope --size 2Gi
volume salvage nope
standby create nope new
standby activate
standby activate nope
standby activate demo
volume scale demo
volume scale demo --replicas 99
volume scale nope --replicas 2
volume set-locality demo somewhere
volume set-locality nope disabled
volume trim demo
volume trim nope
volume upgrade nope
volume upgrade busy --image nope
volume watch nope
volume list --token-file x --kubeconfig y
volume list --context z
volume list --server http://127.0.0.1:1 --port-forward
volume list extra
engine logs demo --tail 0
replica inspect /nowhere/at -o csv
replica export /nowhere/at /nowhere/image --format tar
recurring-job create new --task snapshot --cron @daily --retain 1 --retain-age 1h
recurring-job create new --task snapshot
snapshot get
snapshot get demo nope
demo --dry-run
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

// TestEveryCommandHasAGolden: errors.golden has a refusal of each command, and each command that
// shows objects has a golden file of its table.
func TestEveryCommandHasAGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/errors.golden")
	if err != nil {
		t.Fatal(err)
	}
	refused := map[string]bool{}
	for _, entry := range strings.Split(string(text), "\n\n") {
		line, _, _ := strings.Cut(strings.TrimPrefix(entry, "$ ankole "), "\n")
		if words := strings.Fields(line); len(words) > 0 && !strings.HasSuffix(entry, "\n[0]") {
			refused[words[0]] = true
			refused[strings.Join(words[:min(2, len(words))], " ")] = true
		}
	}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		path := strings.TrimPrefix(c.CommandPath(), "ankole ")
		if c.HasSubCommands() {
			for _, sub := range c.Commands() {
				walk(sub)
			}
			return
		}
		if !refused[path] && path != "standalone" { // which is another program
			t.Errorf("errors.golden has no refusal of: ankole %s", path)
		}
		kind, verb, _ := strings.Cut(path, " ")
		pattern := map[string]string{"list": kind + "-list", "get": kind + "-get", "show": kind + "-show", "of": kind + "-of",
			"describe": "describe-" + kind}[verb]
		if pattern == "" {
			return
		}
		if found, err := filepath.Glob("testdata/" + pattern + "*.golden"); err != nil || len(found) == 0 {
			t.Errorf("no golden file of: ankole %s (%v)", path, err)
		}
	}
	walk(newApp(io.Discard, io.Discard).root())
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
	s, err := rest.New(rest.Config{EngineImage: resttest.Image, Config: serve.Config{Client: c,
		Logger:   slog.New(slog.DiscardHandler),
		Judge:    access.NewJudge(c, lh.Namespace, nil),
		Sessions: &access.Sessions{Keys: &access.Keyring{Client: c, Namespace: lh.Namespace}}}})
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
