package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
	"ankole.storage/rest"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resttest"
)

// judged has every setting that is made or changed judged by the webhook, as the API server does.
func judged(t *testing.T) interceptor.Funcs {
	t.Helper()
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, ok := o.(*lh.Setting); ok {
				if err := reviewOf(t, c, "settings", nil, o); err != nil {
					return err
				}
			}
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if _, ok := o.(*lh.Setting); ok {
				old := o.DeepCopyObject().(client.Object)
				if err := c.Get(ctx, client.ObjectKeyFromObject(o), old); err != nil {
					return err
				}
				if err := reviewOf(t, c, "settings", old, o); err != nil {
					return err
				}
			}
			return c.Update(ctx, o, opts...)
		},
	}
}

// definition is what a client reads of a setting.
type definition struct {
	Name, Value string
	Definition  struct {
		Type, Default      string
		ReadOnly, Required bool
		Options            []any
		Range              map[string]int
	}
}

// another is a value that the setting may have besides its default, "" where a client cannot tell.
func (d definition) another() string {
	for _, o := range d.Definition.Options {
		if text := fmt.Sprint(o); !strings.Contains(d.Definition.Default, text) {
			return text
		}
	}
	switch d.Definition.Type {
	case "bool":
		return map[bool]string{true: "false", false: "true"}[d.Definition.Default == "true"]
	case "int":
		return fmt.Sprint(d.Definition.Range["minimum"] + 1)
	}
	return ""
}

// readSettings and putSetting are what such a client does.
func (f *fixture) readSettings() (all []definition) {
	f.T.Helper()
	var list struct{ Data []definition }
	apitest.Must(f.T, json.Unmarshal([]byte(f.Do(http.MethodGet, "/v1/settings", "").Text), &list))
	return list.Data
}

func (f *fixture) putSetting(name, value string) apitest.Answer {
	f.T.Helper()
	body, err := json.Marshal(map[string]string{"value": value})
	apitest.Must(f.T, err)
	return f.Do(http.MethodPut, "/v1/settings/"+name, string(body))
}

// writeDefaults writes the default of each setting back that is not read-only, and counts them.
func (f *fixture) writeDefaults() (written int) {
	f.T.Helper()
	for _, d := range f.readSettings() {
		if d.Definition.ReadOnly {
			continue
		}
		written++
		// Paths are stored without a slash at their end.
		want := strings.TrimSuffix(d.Definition.Default, "/")
		if a := f.putSetting(d.Name, d.Definition.Default); a.Status != http.StatusOK || a.JSON["value"] != want {
			f.T.Errorf("%s: its default %q: %d %s", d.Name, d.Definition.Default, a.Status, a.Text)
		}
	}
	return written
}

// TestEveryDefaultIsAccepted: a client that sets settings to something else, and then writes the
// default of each back that is not read-only, as tests do between two cases, gets what it wrote, in
// a cluster with nodes and with an attached volume.
func TestEveryDefaultIsAccepted(t *testing.T) {
	f := newFixtureWith(t, judged(t), func(*rest.Config) {}, resttest.Cluster(resttest.Attached()...)...)
	changed := 0
	for _, d := range f.readSettings() {
		if d.Name == "disable-snapshot-purge" {
			continue // it must be false before auto-cleanup-system-generated-snapshot may be true
		}
		other := d.another()
		if other != "" && !d.Definition.ReadOnly && f.putSetting(d.Name, other).Status == http.StatusOK {
			changed++
		}
	}
	written := f.writeDefaults() // after a change
	written += f.writeDefaults() // and of what has its default
	if changed < 40 || written < 150 {
		t.Errorf("%d settings were changed, %d defaults written", changed, written)
	}
}

// TestEveryDefaultIsAcceptedOfTheAnonymous: the same of a client without a token, where such
// callers may do everything, as in a standalone cluster: what they may not change is read-only to
// them, whatever value it has. To write the value that a setting has changes nothing and is
// accepted.
func TestEveryDefaultIsAcceptedOfTheAnonymous(t *testing.T) {
	values := map[string]string{setting.APIAnonymousAccess: "all", setting.APIHostNames: "storage.example",
		setting.ManagerURL: "http://storage.example"}
	objects := resttest.Cluster(resttest.Attached()...)
	for name, value := range values {
		objects = append(objects, &lh.Setting{ObjectMeta: resttest.Meta(name), Value: value})
	}
	f := newFixtureWith(t, judged(t), apitest.Judge, objects...)
	if written := f.writeDefaults(); written < 75 {
		t.Errorf("%d defaults written", written)
	}
	for name, value := range values {
		d := f.Get("/v1/settings/" + name)
		if d["value"] != value || d["definition"].(map[string]any)["readOnly"] != true {
			t.Errorf("%s: %v", name, d)
		}
		if a := f.putSetting(name, value); a.Status != http.StatusOK || a.JSON["value"] != value {
			t.Errorf("%s: the value it has: %d %s", name, a.Status, a.Text)
		}
		f.Refused(f.putSetting(name, d["definition"].(map[string]any)["default"].(string)), http.StatusForbidden,
			"callers without a token may not change it")
	}
	g := guarded(t, &resttest.Reviews{Rights: apitest.Users}, "none", apitest.Same)
	d := g.Do(http.MethodGet, "/v1/settings/"+setting.APIAnonymousAccess, "",
		apitest.Bearer("admin")...).JSON["definition"]
	if d.(map[string]any)["readOnly"] != false {
		t.Errorf("with a token: %v", d)
	}
}
