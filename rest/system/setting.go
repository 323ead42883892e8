package system

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/admission"
	"ankole.storage/controlplane/object/conflict"
	"ankole.storage/controlplane/setting"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

func listSettings(q *serve.Request) (any, error) {
	var stored lh.SettingList
	if err := q.Objects.List(q.Context(), &stored); err != nil {
		return nil, fmt.Errorf("listing settings: %w", err)
	}
	byID := map[string]*lh.Setting{}
	for i := range stored.Items {
		byID[stored.Items[i].Name] = &stored.Items[i]
	}
	definitions := setting.Definitions()
	slices.SortFunc(definitions, func(a, b setting.Definition) int { return strings.Compare(a.Name, b.Name) })
	var views []resource.Setting
	for _, d := range definitions {
		views = append(views, settingView(q, d, byID[d.Name]))
	}
	return serve.Collection(q, resource.TypeSetting, views), nil
}

// getSetting never answers 404 for a name that does not exist: clients tell old and new versions
// apart by the text.
func getSetting(q *serve.Request) (any, error) {
	name := q.Params["name"]
	d, err := setting.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("failed to get setting %s: %w", name, err)
	}
	var stored lh.Setting
	switch err := q.Objects.Get(q.Context(), name, &stored); {
	case apierrors.IsNotFound(err):
		return settingView(q, d, nil), nil
	case err != nil:
		return nil, fmt.Errorf("failed to get setting %s: %w", name, err)
	}
	return settingView(q, d, &stored), nil
}

// settingView shows a setting; one that is not stored has its default and nothing left to apply. It
// is read-only for callers who may not change it.
func settingView(q *serve.Request, d setting.Definition, stored *lh.Setting) resource.Setting {
	out := resource.Setting{Resource: q.Envelope(resource.TypeSetting, d.Name, resource.WhenAlways), Name: d.Name,
		Value:   d.Default,
		Applied: true, Definition: resource.SettingDefinition{DisplayName: d.DisplayName, Description: d.Description,
			Category: string(d.Category), ValueType: string(d.Type), Required: d.Required,
			ReadOnly: d.ReadOnly || fixed(q, d.Name), Default: d.Default, DataEngineSpecific: d.DataEngineSpecific}}
	if stored != nil {
		out.Value, out.Applied = stored.Value, stored.Status.Applied
	}
	for _, o := range d.Options {
		n, err := strconv.Atoi(o)
		if d.Type == setting.TypeInt && err == nil {
			out.Definition.Options = append(out.Definition.Options, n)
		} else {
			out.Definition.Options = append(out.Definition.Options, o)
		}
	}
	if d.Range != nil {
		addRange(&out.Definition, d)
	}
	return out
}

func addRange(into *resource.SettingDefinition, d setting.Definition) {
	if d.Type == setting.TypeFloat {
		into.FloatRange = resource.Bounds{"minimum": float64(d.Range.Minimum)}
		if d.Range.Maximum != nil {
			into.FloatRange["maximum"] = float64(*d.Range.Maximum)
		}
		return
	}
	into.Range = map[string]int64{"minimum": int64(d.Range.Minimum)}
	if d.Range.Maximum != nil {
		into.Range["maximum"] = int64(*d.Range.Maximum)
	}
}

func updateSetting(q *serve.Request) (any, error) {
	name := q.Params["name"]
	var in resource.SettingInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	if in.Value == nil {
		return nil, fmt.Errorf("failed to update setting %s: the body has no value; send {\"value\": \"…\"}", name)
	}
	d, err := setting.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("failed to update setting %s: %w", name, err)
	}
	value := strings.TrimSpace(*in.Value)
	// What counts is the form that is stored; a refusal shows the one that was sent.
	normal := setting.Normalize(name, value)
	if err := checkReadOnly(q.Context(), q.Objects, d, normal); err != nil {
		return nil, fmt.Errorf("failed to update setting %s: %w", name, err)
	}
	if err := setting.Validate(name, value); err != nil && setting.Validate(name, normal) != nil {
		return nil, fmt.Errorf("failed to validate setting %s with invalid value %s: %w", name, serve.Shorten(value), err)
	}
	if err := mayChange(q, name, normal); err != nil {
		return nil, fmt.Errorf("failed to update setting %s: %w", name, err)
	}
	stored, err := storeSetting(q.Context(), q.Objects, name, normal)
	if err != nil {
		return nil, fmt.Errorf("failed to update setting %s with invalid value %s: %w", name, serve.Shorten(value), err)
	}
	return settingView(q, d, stored), nil
}

// checkReadOnly refuses to change what the system alone changes. A setting that is not stored has
// its default.
func checkReadOnly(ctx context.Context, o *serve.Objects, d setting.Definition, value string) error {
	old := &lh.Setting{}
	switch err := o.Get(ctx, d.Name, old); {
	case apierrors.IsNotFound(err):
		old = &lh.Setting{ObjectMeta: metav1.ObjectMeta{Name: d.Name}, Value: d.Default}
	case err != nil:
		return err
	}
	changed := old.DeepCopy()
	changed.Value = value
	return admission.CheckReadOnly(old, changed)
}

// admitting are the settings that say who is let in without a token: under which names, too.
var admitting = []string{setting.APIAnonymousAccess, setting.APIHostNames, setting.ManagerURL,
	setting.APITokenAudience}

// fixed says whether a setting is not the caller's to change. Callers who show nothing may not
// change what such callers may do: a client that writes all defaults back would lock itself out,
// and a stranger could let others in.
func fixed(q *serve.Request, name string) bool {
	return q.Stranger() && slices.Contains(admitting, name)
}

// mayChange refuses another value of what is not the caller's to change.
func mayChange(q *serve.Request, name, value string) error {
	if !fixed(q, name) {
		return nil
	}
	have, err := q.Objects.Setting(q.Context(), name)
	if err != nil || have == value {
		return err
	}
	return serve.Refuse(http.StatusForbidden, fmt.Errorf("callers without a token may not change it: send one, or use kubectl -n "+
		"%s edit settings.longhorn.io %s", q.Objects.Namespace, name))
}

// storeSetting writes a value, creating the object when the manager has not done so yet.
func storeSetting(ctx context.Context, o *serve.Objects, name, value string) (*lh.Setting, error) {
	var stored *lh.Setting
	err := conflict.Retry(func() error {
		stored = &lh.Setting{}
		err := o.Get(ctx, name, stored)
		if apierrors.IsNotFound(err) {
			stored = &lh.Setting{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: o.Namespace}, Value: value}
			return o.Client.Create(ctx, stored)
		}
		if err != nil || stored.Value == value {
			return err
		}
		stored.Value = value
		return o.Client.Update(ctx, stored)
	})
	if err != nil {
		return nil, err
	}
	return stored, nil
}
