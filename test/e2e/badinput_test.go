package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"ankole.storage/rest/resource"
)

// badInput feeds wrong values to the API: each is refused with a message that says why, and nothing
// changes.
func badInput(t *testing.T, c *cluster) {
	c.create("victim", 64*mib, 3)
	defer c.remove("victim")
	base := strings.TrimSuffix(c.API, "/v1") + "/v1"
	for _, r := range []struct{ name, method, path, body, want string }{
		{"size not a number", "POST", "/volumes", `{"name":"bad","size":"many"}`, "size"},
		{"negative size", "POST", "/volumes", `{"name":"bad","size":"-1Gi"}`, "size"},
		{"size over every file system", "POST", "/volumes", `{"name":"bad","size":"100Pi"}`, "can never be placed"},
		{"name not a DNS label", "POST", "/volumes", `{"name":"Bad_Name!","size":"64Mi"}`, "name"},
		{"no name", "POST", "/volumes", `{"size":"64Mi"}`, "name"},
		{"21 replicas", "POST", "/volumes", `{"name":"bad","size":"64Mi","numberOfReplicas":21}`, "between 1 to 20"},
		{"-1 replicas", "POST", "/volumes", `{"name":"bad","size":"64Mi","numberOfReplicas":-1}`, ""},
		{"unknown locality", "POST", "/volumes", `{"name":"bad","size":"64Mi","dataLocality":"disable"}`, "data locality"},
		{"body is not JSON", "POST", "/volumes", `{{{`, ""},
		{"empty body", "POST", "/volumes", ``, "EOF"},
		{"name taken", "POST", "/volumes", `{"name":"victim","size":"64Mi"}`, "already exist"},
		{"attach to an unknown node", "POST", "/volumes/victim?action=attach", `{"hostId":"nowhere"}`, "nowhere"},
		{"attach to no node", "POST", "/volumes/victim?action=attach", `{}`, ""},
		{"unknown action", "POST", "/volumes/victim?action=explode", `{}`, ""},
		{"one snapshot at most", "POST", "/volumes/victim?action=updateSnapshotMaxCount", `{"snapshotMaxCount":1}`,
			"between 2 to 250"},
		{"another compression", "POST", "/volumes/victim?action=updateBackupCompressionMethod",
			`{"backupCompressionMethod":"none"}`, "changing backup compression method"},
		{"unknown backup target", "POST", "/volumes/victim?action=updateBackupTargetName",
			`{"backupTargetName":"nowhere"}`, "backup target nowhere"},
		{"access mode of no kind", "POST", "/volumes/victim?action=updateAccessMode", `{"accessMode":"all"}`, "access mode"},
		{"job that is no label", "POST", "/volumes/victim?action=recurringJobAdd", `{"name":"a b"}`, "invalid name"},
		{"unknown setting", "PUT", "/settings/no-such-setting", `{"value":"1"}`, "no-such-setting"},
		{"setting out of range", "PUT", "/settings/default-replica-count", `{"value":"21"}`, "with invalid value"},
		{"setting not a number", "PUT", "/settings/replica-replenishment-wait-interval", `{"value":"soon"}`,
			"with invalid value"},
		{"B12: setting that is not used any more", "PUT", "/settings/guaranteed-engine-cpu", `{"value":"0.5"}`, "read-only"},
		{"B7: shares of CPU of 40 % together", "PUT", "/settings/guaranteed-replica-manager-cpu", `{"value":"28"}`,
			"is 40 and should be smaller than 40"},
		{"B7: share of CPU above 40 %", "PUT", "/settings/guaranteed-instance-manager-cpu", `{"value":"41"}`,
			"should be less than or equal to 40"},
		{"B7: CPU of a node above 40 %", "PUT", "/nodes/node-1", `{"allowScheduling":true,"instanceManagerCPURequest":99999}`,
			"should be less than or equal to 40%"},
		{"B7: CPU of older types above 40 %", "PUT", "/nodes/node-1",
			`{"allowScheduling":true,"engineManagerCPURequest":99999}`, "should be smaller than 40%"},
		{"B7: CPU below 0", "PUT", "/nodes/node-1", `{"allowScheduling":true,"instanceManagerCPURequest":-1}`,
			"greater than or equal to 0"},
		{"read-only setting", "PUT", "/settings/current-longhorn-version", `{"value":"9"}`, "read-only"},
	} {
		t.Run(r.name, func(t *testing.T) {
			status, body := c.call(t, r.method, base+r.path, strings.NewReader(r.body))
			if status < 400 {
				t.Fatalf("accepted with %d: %s", status, body)
			}
			if !strings.Contains(body, r.want) {
				t.Errorf("answer %d %q does not mention %q", status, body, r.want)
			}
		})
	}
	t.Run("100 MB body", func(t *testing.T) {
		status, body := c.call(t, "POST", base+"/volumes", io.LimitReader(zeroes{}, 100<<20))
		if status < 400 {
			t.Errorf("accepted with %d: %.200s", status, body)
		}
	})
	t.Run("size over every disk", func(t *testing.T) { tooLarge(t, c) })
	t.Run("attach twice to two nodes", func(t *testing.T) {
		outer := c.t
		c.t = t
		defer func() { c.t = outer }()
		c.attach("victim", "node-1", 3)
		_, err := c.rest.AttachVolume(context.Background(), "victim",
			resource.AttachInput{HostID: "node-2", AttachmentID: ""})
		if err == nil {
			t.Error("the same ticket was moved to another node while attached")
		}
		if v := c.volume("victim"); v.State != "attached" || v.Controllers[0].HostID != "node-1" {
			t.Errorf("volume is %s on %s after a refused attach", v.State, v.Controllers[0].HostID)
		}
	})
	volumes, err := c.rest.Volumes(context.Background())
	if err != nil || len(volumes) != 1 {
		t.Errorf("bad input left volumes behind: %d %v", len(volumes), err)
	}
}

// tooLarge: a volume that no disk can hold is taken in, since disks may be added, but it says at
// once why it cannot be used, and attaching it is refused with the reason.
func tooLarge(t *testing.T, c *cluster) {
	outer := c.t
	c.t = t
	defer func() { c.t = outer }()
	c.create("huge", 8<<40, 3)
	defer c.remove("huge")
	c.eventually("condition Scheduled tells that there is no room", func(ctx context.Context) error {
		v, err := c.rest.Volume(ctx, "huge")
		if err != nil {
			return err
		}
		if s := v.Conditions["Scheduled"]; s.Status != "False" || !strings.Contains(s.Message, "insufficient storage") {
			return fmt.Errorf("Scheduled is %q: %s", s.Status, s.Message)
		}
		return nil
	})
	_, err := c.rest.AttachVolume(context.Background(), "huge", resource.AttachInput{HostID: "node-1"})
	if err == nil || !strings.Contains(err.Error(), "unable to attach volume") {
		t.Errorf("attach: %v", err)
	}
}

type zeroes struct{}

// Read implements io.Reader: spaces without end, which a JSON decoder would take in for ever.
func (zeroes) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// call sends a request with the token of an administrator.
func (c *cluster) call(t *testing.T, method, url string, body io.Reader) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Authorize(req); err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		// A server may hang up on a body that is too long before it was sent.
		return http.StatusRequestEntityTooLarge, err.Error()
	}
	defer res.Body.Close()
	p, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(p)
}
