package rest

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

// TestEveryDefaultIsAccepted: a client that sets settings to something else, and then writes the
// default of each back that is not read-only, as tests do between two cases, gets what it wrote, in
// a cluster with nodes and with an attached volume.
func TestEveryDefaultIsAccepted(t *testing.T) {
	f := newFixtureWith(t, judged(t), func(*Config) {}, resttest.Cluster(attached()...)...)
	read := func() (all []definition) {
		t.Helper()
		var list struct{ Data []definition }
		must(t, json.Unmarshal([]byte(f.do(http.MethodGet, "/v1/settings", "").text), &list))
		return list.Data
	}
	put := func(name, value string) answer {
		body, err := json.Marshal(map[string]string{"value": value})
		must(t, err)
		return f.do(http.MethodPut, "/v1/settings/"+name, string(body))
	}
	changed, written := 0, 0
	for _, d := range read() {
		if d.Name == "disable-snapshot-purge" {
			continue // it must be false before auto-cleanup-system-generated-snapshot may be true
		}
		if other := d.another(); other != "" && !d.Definition.ReadOnly && put(d.Name, other).status == http.StatusOK {
			changed++
		}
	}
	for range 2 { // after a change, and of what has its default
		for _, d := range read() {
			if d.Definition.ReadOnly {
				continue
			}
			written++
			// Paths are stored without a slash at their end.
			want := strings.TrimSuffix(d.Definition.Default, "/")
			if a := put(d.Name, d.Definition.Default); a.status != http.StatusOK || a.json["value"] != want {
				t.Errorf("%s: its default %q: %d %s", d.Name, d.Definition.Default, a.status, a.text)
			}
		}
	}
	if changed < 40 || written < 150 {
		t.Errorf("%d settings were changed, %d defaults written", changed, written)
	}
}
