package crd

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	apiservervalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestAPIServerAcceptsCRDs runs the checks that the API server makes when a CRD is created: that
// the schema is structural, and that no rule could cost too much.
func TestAPIServerAcceptsCRDs(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apiextensions.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range all {
		scheme.Default(crd)
		apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
		crd.Status.StoredVersions = []string{v1beta2.Version}
		internal := &apiextensions.CustomResourceDefinition{}
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd,
			internal, nil); err != nil {
			t.Fatal(err)
		}
		for _, problem := range validation.ValidateCustomResourceDefinition(context.Background(), internal) {
			t.Errorf("%s: %v", crd.Name, problem)
		}
	}
}

// checker validates objects of one kind as the API server does.
type checker struct {
	structural *structuralschema.Structural
	schema     apiservervalidation.SchemaValidator
	cel        *cel.Validator
}

func newChecker(t *testing.T, kind string) checker {
	t.Helper()
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range all {
		if crd.Spec.Names.Kind != kind {
			continue
		}
		props := &apiextensions.JSONSchemaProps{}
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
			crd.Spec.Versions[0].Schema.OpenAPIV3Schema, props, nil); err != nil {
			t.Fatal(err)
		}
		structural, err := structuralschema.NewStructural(props)
		if err != nil {
			t.Fatal(err)
		}
		validator, _, err := apiservervalidation.NewSchemaValidator(props)
		if err != nil {
			t.Fatal(err)
		}
		return checker{structural, validator, cel.NewValidator(structural, true, celconfig.PerCallLimit)}
	}
	t.Fatalf("no CRD of kind %s", kind)
	return checker{}
}

// problems returns what the API server would say about an object, and which fields it would prune.
func (c checker) problems(t *testing.T, object, old any) (errs field.ErrorList, pruned []string) {
	t.Helper()
	content := generic(t, object)
	pruned = pruning.PruneWithOptions(content, c.structural, true,
		structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	errs = apiservervalidation.ValidateCustomResource(nil, content, c.schema)
	var before any
	if old != nil {
		before = generic(t, old)
	}
	rules, _ := c.cel.Validate(context.Background(), nil, c.structural, content, before, celconfig.RuntimeCELCostBudget)
	return append(errs, rules...), pruned
}

// generic returns an object as the API server sees it behind the JSON.
func generic(t *testing.T, object any) map[string]any {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	content := map[string]any{}
	if err := json.Unmarshal(text, &content); err != nil {
		t.Fatal(err)
	}
	return content
}

// TestEmptyObjectsAreValid: a Go object with nothing filled in must not carry nulls or empty words
// that the schema forbids, except where a value is required.
func TestEmptyObjectsAreValid(t *testing.T) {
	for _, k := range v1beta2.Kinds() {
		object := k.Object.DeepCopyObject()
		object.GetObjectKind().SetGroupVersionKind(v1beta2.GroupVersion.WithKind(k.Name))
		switch o := object.(type) {
		case *v1beta2.EngineImage:
			o.Spec.Image = "ankole/engine:dev"
		case *v1beta2.SystemRestore:
			o.Spec.SystemBackup = "backup"
		}
		errs, pruned := newChecker(t, k.Name).problems(t, object, nil)
		for _, err := range errs {
			t.Errorf("%s: %v", k.Name, err)
		}
		if len(pruned) > 0 {
			t.Errorf("%s: pruned fields %v", k.Name, pruned)
		}
	}
}

func TestRules(t *testing.T) {
	volume := func(change func(*v1beta2.Volume)) *v1beta2.Volume {
		v := &v1beta2.Volume{}
		v.Spec.Size, v.Spec.BackingImage, v.Spec.Encrypted = 1<<30, "iso", true
		v.Spec.TopologyRequirement = []v1beta2.TopologyTerm{{Zone: "a"}}
		if change != nil {
			change(v)
		}
		return v
	}
	tests := []struct {
		what, kind  string
		old, object any
		// why is a part of the message, empty if the object is good.
		why string
	}{
		{"same again", "Volume", volume(nil), volume(nil), ""},
		{"size", "Volume", volume(nil), volume(func(v *v1beta2.Volume) { v.Spec.Size *= 2 }), ""},
		{"backing image", "Volume", volume(nil), volume(func(v *v1beta2.Volume) {
			v.Spec.BackingImage = "b"
		}), "backingImage is immutable"},
		{"encryption", "Volume", volume(nil), volume(func(v *v1beta2.Volume) {
			v.Spec.Encrypted = false
		}), "encrypted is immutable"},
		{"topology", "Volume", volume(nil), volume(func(v *v1beta2.Volume) { v.Spec.TopologyRequirement[0].Zone = "b" }),
			"topologyRequirement is immutable"},
		{"access mode", "Volume", nil, volume(func(v *v1beta2.Volume) { v.Spec.AccessMode = "rox" }), "Unsupported value"},
		{"sync limit", "Volume", nil, volume(func(v *v1beta2.Volume) {
			v.Spec.RebuildConcurrentSyncLimit = 6
		}), "less than or equal to 5"},
		{"size as a number", "Volume", nil, map[string]any{"spec": map[string]any{"size": 1 << 30}},
			"must be of type string"},
		{"negative age", "RecurringJob", nil, &v1beta2.RecurringJob{Spec: v1beta2.RecurringJobSpec{RetainAge: "-1h"}},
			"must not be negative"},
		{"age", "RecurringJob", nil, &v1beta2.RecurringJob{Spec: v1beta2.RecurringJobSpec{RetainAge: "72h"}}, ""},
		{"no image", "EngineImage", nil, &v1beta2.EngineImage{}, "should be at least 1 chars long"},
		{"no value", "Setting", nil, map[string]any{}, "Required value"},
		{"negative epoch", "Engine", nil,
			&v1beta2.Engine{Status: v1beta2.EngineStatus{Membership: &v1beta2.Membership{Epoch: -1}}},
			"greater than or equal to 0"},
		{"membership", "Engine", nil,
			&v1beta2.Engine{Status: v1beta2.EngineStatus{Membership: &v1beta2.Membership{Epoch: 1 << 40,
				Members: []string{"a"}}}}, ""},
	}
	for _, test := range tests {
		errs, _ := newChecker(t, test.kind).problems(t, test.object, test.old)
		text := ""
		if err := errs.ToAggregate(); err != nil {
			text = err.Error()
		}
		if test.why == "" && text != "" || !strings.Contains(text, test.why) {
			t.Errorf("%s: %q, want %q", test.what, text, test.why)
		}
	}
}
