// Package deploy holds the Kubernetes objects that make up an installation, as template files.
//
// The files in manifests/ are the one place where the installation is described: standalone applies
// them at every start, and the chart and the plain manifest are made from them. They use the
// delimiters and the `.Values` convention of Helm charts. The manager itself installs the custom
// resource definitions.
package deploy

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"text/template"
)

//go:embed manifests/*.yaml
var manifests embed.FS

// Values fills the templates.
type Values struct {
	Namespace string
	// Images by component.
	ManagerImage, EngineImage, InstanceManagerImage string
	// ImagePullPolicy of all Pods.
	ImagePullPolicy string
	// WebhookURL is where the API server reaches the manager's webhooks when there are no Services;
	// empty on a real cluster.
	WebhookURL string
	// ManagerArgs are appended to the manager's command line.
	ManagerArgs []string
}

// DefaultValues are those of a standalone cluster.
func DefaultValues() Values {
	return Values{
		Namespace:            "longhorn-system",
		ManagerImage:         "ankole/manager:dev",
		EngineImage:          "ankole/engine:dev",
		InstanceManagerImage: "ankole/instance-manager:dev",
		ImagePullPolicy:      "IfNotPresent",
	}
}

// Render returns one YAML document per object, in the order in which they must be applied.
func Render(v Values) ([][]byte, error) {
	names, err := fs.Glob(manifests, "manifests/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("deploy: %w", err)
	}
	slices.Sort(names)
	var docs [][]byte
	for _, name := range names {
		text, err := manifests.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("deploy: %w", err)
		}
		t, err := template.New(name).Option("missingkey=error").Funcs(template.FuncMap{"quote": quote}).Parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("deploy: %w", err)
		}
		var b bytes.Buffer
		if err := t.Execute(&b, map[string]Values{"Values": v}); err != nil {
			return nil, fmt.Errorf("deploy: %w", err)
		}
		for doc := range strings.SplitSeq(b.String(), "\n---\n") {
			if strings.TrimSpace(doc) != "" {
				docs = append(docs, []byte(doc))
			}
		}
	}
	return docs, nil
}

func quote(s string) string { return fmt.Sprintf("%q", s) }
