package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// objectVersion is the apiVersion of the objects that apply takes.
const objectVersion = "longhorn.io/v1beta2"

// maxManifest bounds one file, in bytes.
const maxManifest = 16 << 20

// manifest is an object as Kubernetes writes it, or the part of one that is wanted.
type manifest struct {
	// Where is the file and the number of the document in it, for messages.
	Where      string `yaml:"-"`
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Name   string            `yaml:"name"`
		Labels map[string]string `yaml:"labels"`
	} `yaml:"metadata"`
	Spec map[string]any `yaml:"spec"`
	// Value is that of a setting.
	Value any `yaml:"value"`
	// Items are those of a list.
	Items []*manifest `yaml:"items"`
}

// object is the manifest's object in the words of this command.
func (m *manifest) object() string { return kebab(m.Kind) + "/" + m.Metadata.Name }

// change is one step from what there is to what is wanted.
type change struct {
	// text is what changes, such as "numberOfReplicas 2 -> 3"; empty for a creation.
	text string
	do   func(context.Context) error
}

// plan is what has to be done about an object; nothing if it is as it is wanted.
type plan struct {
	creates bool
	changes []change
	// again plans what is left after a creation; nil: nothing is.
	again func(context.Context) (*plan, error)
}

// applier knows what is wanted of one kind of object and compares it with what there is.
type applier struct {
	// fields are those of the spec that it knows.
	fields []string
	plan   func(context.Context, *client.Client, *manifest) (*plan, error)
}

func (a *app) applyCommand() *cobra.Command {
	var files []string
	c := &cobra.Command{Use: "apply -f FILE", Short: "Create and change objects until they are as a YAML file says",
		Long: "Create and change objects until they are as a YAML file says: " + strings.Join(sortedKeys(appliers), ", ") + "\n" +
			"of apiVersion " + objectVersion + ", as kubectl get -o yaml prints them. They go through the same API as every other\n" +
			"command, so its rules hold: each change is an action that the object's state must allow. What a file does not\n" +
			"name, or names with an empty value, is left as it is; nothing is deleted. With --dry-run it says what would change.",
		Example: "  ankole apply -f volumes.yaml --dry-run\n  kubectl -n longhorn-system get volumes.longhorn.io demo -o yaml | ankole apply -f -",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return usagef("the file is missing; add -f FILE, or -f - for standard input")
			}
			all, err := readManifests(cmd.InOrStdin(), files)
			if err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			return a.applyAll(cmd.Context(), api, all)
		}}
	c.Flags().StringArrayVarP(&files, "file", "f", nil, "YAML or JSON file, directory of such files, or - for standard input")
	return c
}

// applyAll brings every object to what is wanted, whatever happens to the others.
func (a *app) applyAll(ctx context.Context, api *client.Client, all []*manifest) error {
	failed := 0
	for _, m := range all {
		if err := a.applyOne(ctx, api, m); err != nil {
			if errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUnreachable) {
				return err
			}
			failed++
			fmt.Fprintf(a.err, "error: %s: %s\n", m.object(), a.spelled(a.explain(err).Error()))
		}
	}
	if failed > 0 {
		return &someFailed{failed, len(all)}
	}
	return nil
}

func (a *app) applyOne(ctx context.Context, api *client.Client, m *manifest) error {
	p, err := appliers[m.Kind].plan(ctx, api, m)
	if err != nil {
		return err
	}
	created := p.creates
	var done []string
	for {
		for _, c := range p.changes {
			if !a.dryRun {
				if err := c.do(ctx); err != nil {
					return a.afterSome(m, created && !p.creates, done, err)
				}
			}
			if c.text != "" {
				done = append(done, c.text)
			}
		}
		if p.again == nil || a.dryRun {
			break
		}
		if p, err = p.again(ctx); err != nil {
			return a.afterSome(m, created, done, err)
		}
	}
	a.sayApplied(m, created, done)
	return nil
}

// afterSome says what was done before something failed.
func (a *app) afterSome(m *manifest, created bool, done []string, err error) error {
	if created || len(done) > 0 {
		a.sayApplied(m, created, done)
	}
	return err
}

func (a *app) sayApplied(m *manifest, created bool, done []string) {
	verb := "unchanged"
	would := ""
	if a.dryRun {
		would = "would be "
	}
	switch {
	case created:
		verb = would + "created"
	case len(done) > 0:
		verb = would + "changed"
	}
	if len(done) > 0 {
		verb += ": " + strings.Join(done, ", ")
	}
	fmt.Fprintf(a.out, "%s %s\n", m.object(), oneLine(verb))
}

// readManifests reads and checks all files before anything is done.
func readManifests(in io.Reader, files []string) ([]*manifest, error) {
	var all []*manifest
	for _, name := range files {
		more, err := readManifestFile(in, name)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no objects in it", strings.Join(files, ", "))
	}
	var problems []error
	for _, m := range all {
		if err := m.check(); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", m.Where, err))
		}
	}
	return all, errors.Join(problems...)
}

func readManifestFile(in io.Reader, name string) ([]*manifest, error) {
	if name == "-" {
		return parseManifests("standard input", in)
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return readManifestDir(name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseManifests(name, f)
}

// readManifestDir reads the files of a directory, in the order of their names, none below it.
func readManifestDir(name string) ([]*manifest, error) {
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	var all []*manifest
	for _, e := range entries {
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) || e.Type()&fs.ModeDir != 0 {
			continue
		}
		more, err := readManifestFile(nil, filepath.Join(name, e.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

func parseManifests(name string, in io.Reader) ([]*manifest, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxManifest+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(text) > maxManifest {
		return nil, fmt.Errorf("%s is longer than %d bytes", name, maxManifest)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	var all []*manifest
	for i := 1; ; i++ {
		var m manifest
		err := d.Decode(&m)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		where := fmt.Sprintf("%s, document %d", name, i)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		parts := []*manifest{&m}
		switch {
		case m.Kind == "List" || strings.HasSuffix(m.Kind, "List") && m.Items != nil:
			parts = m.Items
		case m.Kind == "" && m.APIVersion == "" && m.Spec == nil:
			continue // an empty document
		}
		for _, p := range parts {
			p.Where = where
			all = append(all, p)
		}
	}
}

// check refuses what apply does not know, so that nothing is left out in silence.
func (m *manifest) check() error {
	known, ok := appliers[m.Kind]
	switch {
	case m.APIVersion != objectVersion:
		return fmt.Errorf("apiVersion is %q; apply takes %s", m.APIVersion, objectVersion)
	case !ok:
		return fmt.Errorf("apply does not know kind %q; it knows %s", m.Kind, strings.Join(sortedKeys(appliers), ", "))
	case m.Metadata.Name == "":
		return fmt.Errorf("%s has no metadata.name", m.Kind)
	}
	for _, f := range sortedKeys(m.Spec) {
		if !slices.Contains(known.fields, f) && !isEmpty(m.Spec[f]) {
			return fmt.Errorf("%s: apply cannot set spec.%s to %v%s; it knows %s", m.object(), f, m.Spec[f], elsewhere(m.Kind,
				f),
				strings.Join(known.fields, ", "))
		}
	}
	return nil
}

// elsewhere names the command for what apply leaves alone.
func elsewhere(kind, field string) string {
	if kind == "Volume" && field == "nodeID" {
		return " (a volume is attached with: ankole volume attach)"
	}
	return ""
}

// isEmpty reports whether a value says nothing: it leaves the field as it is.
func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case bool:
		return !v
	case int:
		return v == 0
	case float64:
		return v == 0
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// given reports whether a field is named with a value; false counts as one.
func (m *manifest) given(field string) bool {
	v, ok := m.Spec[field]
	_, isBool := v.(bool)
	return ok && (isBool || !isEmpty(v))
}

// recode turns a value into another type by way of JSON.
func recode(from, into any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return resource.Plain(json.Unmarshal(text, into))
}

// same compares values as JSON has them; the order of lists does not count, and a number equals its
// text.
func same(x, y any) bool { return canonical(x) == canonical(y) }

func canonical(v any) string {
	if list, ok := v.([]any); ok {
		var parts []string
		for _, one := range list {
			parts = append(parts, canonical(one))
		}
		slices.Sort(parts)
		return "[" + strings.Join(parts, ",") + "]"
	}
	if isEmpty(v) {
		if b, ok := v.(bool); ok {
			return fmt.Sprint(b)
		}
		return ""
	}
	if text, ok := v.(string); ok {
		return text
	}
	text, _ := json.Marshal(v) // it came from JSON or YAML
	return string(text)
}

// fromToText is a change of a field in words.
func fromToText(field string, from, to any) string {
	return fmt.Sprintf("%s %s -> %s", field, firstText(canonical(from), "none"), firstText(canonical(to), "none"))
}
