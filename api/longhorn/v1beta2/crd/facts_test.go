package crd

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"ankole.storage/api/longhorn/v1beta2"
)

// The facts come from the description of the interface by tools/facts; see there.
type facts struct {
	Condition []fieldFact
	Kinds     []kindFact
}

type kindFact struct {
	Kind, Plural, Singular, List, ShortName string
	Columns                                 []struct{ Name, Type, JSONPath string }
	Fields                                  []fieldFact
}

type fieldFact struct {
	Path, Type, Default, Minimum, Maximum string
	Enum                                  []string
	Required, Nullable, Legacy            bool
}

// rowCounts is how many fields the description has for each kind. A parser that loses rows would
// make every other test here pass more easily, so it is caught by this.
var rowCounts = map[string]int{
	"Volume": 80, "Engine": 93, "Replica": 38, "EngineImage": 17, "InstanceManager": 31, "Node": 39, "Setting": 2,
	"BackingImage": 26, "BackingImageManager": 23, "BackingImageDataSource": 17, "Backup": 26, "BackupVolume": 16,
	"BackupTarget": 8, "BackupBackingImage": 21, "Snapshot": 17, "RecurringJob": 12, "ShareManager": 5, "Orphan": 6,
	"VolumeAttachment": 12, "SupportBundle": 11, "SystemBackup": 9, "SystemRestore": 5,
}

// differences on purpose: what our schema has or lacks, with the reason. Keys are <kind> <path>.
var differences = map[string]string{
	"Volume spec.deleteSnapshotsWithVolume":                "ours: what the CSI driver may delete with the volume",
	"Volume spec.engineImage":                              "older name of spec.image, accepted and kept equal",
	"Engine spec.engineImage":                              "older name of spec.image, accepted and kept equal",
	"Replica spec.engineImage":                             "older name of spec.image, accepted and kept equal",
	"Engine spec.upgradeAttempt":                           "which hand-over is ordered",
	"Engine status.failedUpgradeAttempt":                   "which has failed",
	"Engine status.lastUpgradeError":                       "and why",
	"Engine status.lastUpgradeFailedAt":                    "and when",
	"InstanceManager status.instanceEngines.*.spec.binary": "which image an engine's process runs",
	"Engine spec.standInFor":                               "the engine that a process on another node stands in for, in a migration",
	"Engine spec.replicaRebuildingBandwidthLimit":          "the volume's, see there",
	"Volume spec.replicaRebuildingBandwidthLimit":          "a bound of rebuilds of data engine v1, which setting replica-rebuilding-bandwidth-limit has too",
	"Engine spec.restartAfter":                             "the next process follows the failed one that is named at once",
	"Engine status.deviceID":                               "tells the block device from others at the same path",
	"Engine status.deviceIn":                               "where it is kept for the next engine",
	"Volume status.processKey":                             "which master key the secret of its processes is derived from",
	"Volume status.deviceID":                               "the one that users of the attached volume have",
	"Engine status.restoreStatus.*.damage":                 "what is zero that the store did not have, in a restore with damage accepted",
	"Engine status.membership":                             "the witness record of the replication protocol is kept in the Engine object",

	"Engine status.order":                                 "tells the processes of one name apart by what they were made for",
	"Replica status.order":                                "tells the processes of one name apart by what they were made for",
	"InstanceManager status.instanceEngines.*.spec.order": "what the process was made for",

	"InstanceManager status.closedPod": "what is about to be removed is closed first: nothing is started there any more",
	"InstanceManager status.storageIP": "the address for data outlives the Pod's annotation, and engines and replicas copy it",

	"Engine spec.storageNetwork":                                  "the network that the volume's processes are to run on",
	"Replica spec.storageNetwork":                                 "the network that the volume's processes are to run on",
	"InstanceManager status.storageNetwork":                       "the network that its Pod was made for; no process starts on another one",
	"Node status.diskStatus.*.healthData.*.attributes":            "SMART's, which the description leaves open",
	"Node status.diskStatus.*.healthData.*.attributes[].id":       "SMART's, which the description leaves open",
	"Node status.diskStatus.*.healthData.*.attributes[].name":     "SMART's, which the description leaves open",
	"Node status.diskStatus.*.healthData.*.attributes[].rawValue": "SMART's, which the description leaves open",

	"Snapshot status.blocked":        "an order that cannot be carried out now can be withdrawn by who gave it",
	"RecurringJob status.conditions": "why a job does not run, such as system backups that are not there yet",

	"Backup status.conditions":                                    "whether the latest verification has found it sound",
	"BackupBackingImage spec.verifyRequestedAt":                   "asks for a verification",
	"BackupBackingImage spec.verifyBandwidthLimit":                "how fast that reads",
	"BackupBackingImage status.verification":                      "the latest verification",
	"BackupBackingImage status.verification.requestedAt":          "part of that",
	"BackupBackingImage status.verification.startedAt":            "part of that",
	"BackupBackingImage status.verification.endedAt":              "part of that",
	"BackupBackingImage status.verification.progress":             "part of that",
	"BackupBackingImage status.verification.next":                 "part of that",
	"BackupBackingImage status.verification.blocks":               "part of that",
	"BackupBackingImage status.verification.readBytes":            "part of that",
	"BackupBackingImage status.verification.backups":              "part of that",
	"BackupBackingImage status.verification.backups[].name":       "part of that",
	"BackupBackingImage status.verification.backups[].faults":     "part of that",
	"BackupBackingImage status.verification.faults":               "part of that",
	"BackupBackingImage status.verification.faults[].kind":        "part of that",
	"BackupBackingImage status.verification.faults[].object":      "part of that",
	"BackupBackingImage status.verification.faults[].message":     "part of that",
	"BackupBackingImage status.verification.faults[].backups":     "part of that",
	"BackupBackingImage status.verification.faults[].backupCount": "part of that",
	"BackupBackingImage status.verification.faultCount":           "part of that",
	"BackupBackingImage status.verification.error":                "part of that",
	"BackupVolume spec.verifyRequestedAt":                         "asks for a verification",
	"BackupVolume spec.verifyBandwidthLimit":                      "how fast that reads",
	"BackupVolume status.verification":                            "the latest verification",
	"BackupVolume status.verification.requestedAt":                "part of that",
	"BackupVolume status.verification.startedAt":                  "part of that",
	"BackupVolume status.verification.endedAt":                    "part of that",
	"BackupVolume status.verification.progress":                   "part of that",
	"BackupVolume status.verification.next":                       "part of that",
	"BackupVolume status.verification.blocks":                     "part of that",
	"BackupVolume status.verification.readBytes":                  "part of that",
	"BackupVolume status.verification.backups":                    "part of that",
	"BackupVolume status.verification.backups[].name":             "part of that",
	"BackupVolume status.verification.backups[].faults":           "part of that",
	"BackupVolume status.verification.faults":                     "part of that",
	"BackupVolume status.verification.faults[].kind":              "part of that",
	"BackupVolume status.verification.faults[].object":            "part of that",
	"BackupVolume status.verification.faults[].message":           "part of that",
	"BackupVolume status.verification.faults[].backups":           "part of that",
	"BackupVolume status.verification.faults[].backupCount":       "part of that",
	"BackupVolume status.verification.faultCount":                 "part of that",
	"BackupVolume status.verification.error":                      "part of that",

	"Engine status.membership.volumeUUID":      "part of the witness record",
	"Engine status.membership.epoch":           "part of the witness record",
	"Engine status.membership.recordEpoch":     "part of the witness record",
	"Engine status.membership.generation":      "part of the witness record",
	"Engine status.membership.members":         "part of the witness record",
	"Engine status.membership.stored":          "part of the witness record",
	"Engine status.membership.engine":          "part of the witness record",
	"Engine status.membership.instanceManager": "part of the witness record",

	"RecurringJob column Retain": "the proposals' column shows spec.retain, which the newer source calls RetainCount",
}

func load(t *testing.T) (facts, map[string]*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	text, err := os.ReadFile("../testdata/crd_facts.json")
	if err != nil {
		t.Fatal(err)
	}
	var f facts
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	byKind := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, c := range all {
		byKind[c.Spec.Names.Kind] = c
	}
	return f, byKind
}

func TestFactsAreComplete(t *testing.T) {
	f, _ := load(t)
	if len(f.Kinds) != len(rowCounts) || len(f.Condition) != 6 {
		t.Errorf("%d kinds and %d condition fields in the facts, want %d and 6", len(f.Kinds), len(f.Condition),
			len(rowCounts))
	}
	for _, k := range f.Kinds {
		if len(k.Fields) != rowCounts[k.Kind] {
			t.Errorf("%s: %d fields in the facts, want %d", k.Kind, len(k.Fields), rowCounts[k.Kind])
		}
	}
}

func TestNamesAndColumns(t *testing.T) {
	f, crds := load(t)
	if len(crds) != len(f.Kinds) {
		t.Errorf("%d CRDs, want %d", len(crds), len(f.Kinds))
	}
	for _, k := range f.Kinds {
		c := crds[k.Kind]
		if c == nil {
			t.Errorf("no CRD of kind %s", k.Kind)
			continue
		}
		n := c.Spec.Names
		if n.Plural != k.Plural || n.Singular != k.Singular || n.ListKind != k.List ||
			!slices.Equal(n.ShortNames, []string{k.ShortName}) {
			t.Errorf("%s: names %+v, want %s, %s, %s, %s", k.Kind, n, k.Plural, k.Singular, k.List, k.ShortName)
		}
		if c.Name != k.Plural+".longhorn.io" || c.Spec.Group != "longhorn.io" ||
			c.Spec.Scope != apiextensionsv1.NamespaceScoped {
			t.Errorf("%s: CRD %s of group %s, scope %s", k.Kind, c.Name, c.Spec.Group, c.Spec.Scope)
		}
		if value, ok := c.Labels["longhorn-manager"]; !ok || value != "" {
			t.Errorf("%s: no empty label longhorn-manager", k.Kind)
		}
		if len(c.Spec.Versions) != 1 || !c.Spec.Versions[0].Storage || !c.Spec.Versions[0].Served ||
			c.Spec.Versions[0].Name != "v1beta2" {
			t.Fatalf("%s: want the one version v1beta2, served and stored", k.Kind)
		}
		if s := c.Spec.Versions[0].Subresources; s == nil || s.Status == nil {
			t.Errorf("%s: no subresource status", k.Kind)
		}
		checkColumns(t, k, c.Spec.Versions[0].AdditionalPrinterColumns)
	}
}

func checkColumns(t *testing.T, k kindFact, got []apiextensionsv1.CustomResourceColumnDefinition) {
	t.Helper()
	if len(got) != len(k.Columns) {
		t.Errorf("%s: %d printer columns, want %d", k.Kind, len(got), len(k.Columns))
		return
	}
	for i, want := range k.Columns {
		if got[i].Name != want.Name {
			t.Errorf("%s: column %d is %s, want %s", k.Kind, i, got[i].Name, want.Name)
		}
		if want.JSONPath == "" {
			if differences[k.Kind+" column "+want.Name] == "" {
				t.Errorf("%s: the facts give no path for column %s", k.Kind, want.Name)
			}
			continue
		}
		if got[i].Type != want.Type || got[i].JSONPath != want.JSONPath {
			t.Errorf("%s: column %s is %s %s, want %s %s", k.Kind, want.Name, got[i].Type, got[i].JSONPath, want.Type,
				want.JSONPath)
		}
	}
}

func TestEveryFieldOfTheDescriptionIsInTheSchema(t *testing.T) {
	f, crds := load(t)
	checked := 0
	for _, k := range f.Kinds {
		c := crds[k.Kind]
		if c == nil {
			continue // TestNamesAndColumns reports it.
		}
		root := c.Spec.Versions[0].Schema.OpenAPIV3Schema
		for _, fact := range k.Fields {
			checked++
			parent, schema, leaf := find(root, fact.Path)
			if schema == nil {
				t.Errorf("%s: field %s is missing", k.Kind, fact.Path)
				continue
			}
			for _, problem := range compare(fact, schema, slices.Contains(parent.Required, leaf)) {
				t.Errorf("%s %s: %s", k.Kind, fact.Path, problem)
			}
			if strings.HasSuffix(fact.Path, "onditions") && fact.Type == "[]object" {
				for _, part := range f.Condition {
					if _, s, _ := find(schema.Items.Schema, part.Path); s == nil || s.Type != part.Type {
						t.Errorf("%s %s: condition field %s is missing", k.Kind, fact.Path, part.Path)
					}
				}
			}
		}
	}
	if checked != 514 {
		t.Errorf("%d fields checked, want 514", checked)
	}
}

// find walks a path of the description: a.b is a property, a.*.b a property of any value of a map,
// a[].b one of any item of a list. It returns the schema of the object around the field, the
// field's own, and the field's name.
func find(root *apiextensionsv1.JSONSchemaProps, path string) (parent, schema *apiextensionsv1.JSONSchemaProps,
	leaf string) {
	schema = root
	for part := range strings.SplitSeq(path, ".") {
		parent = schema
		if part == "*" {
			if parent.AdditionalProperties == nil {
				return parent, nil, part
			}
			schema = parent.AdditionalProperties.Schema
			continue
		}
		name, isList := strings.CutSuffix(part, "[]")
		property, ok := parent.Properties[name]
		if !ok {
			return parent, nil, name
		}
		schema, leaf = &property, name
		if isList {
			if property.Items == nil {
				return parent, nil, name
			}
			schema = property.Items.Schema
		}
	}
	return parent, schema, leaf
}

// typeOf returns the type of a schema in the notation of the description.
func typeOf(s *apiextensionsv1.JSONSchemaProps) string {
	switch {
	case s.Type == "object" && s.AdditionalProperties != nil:
		element := typeOf(s.AdditionalProperties.Schema)
		return "map→" + strings.TrimSuffix(element, "(int64)")
	case s.Type == "array":
		return "[]" + typeOf(s.Items.Schema)
	case s.Format == "int64" || s.Format == "date-time":
		return s.Type + "(" + s.Format + ")"
	case s.Format != "":
		return s.Type + " with format " + s.Format
	}
	return s.Type
}

func compare(fact fieldFact, s *apiextensionsv1.JSONSchemaProps, required bool) (problems []string) {
	differs := func(what string, got, want any) {
		problems = append(problems, fmt.Sprintf("%s is %v, want %v", what, got, want))
	}
	if got := typeOf(s); got != fact.Type {
		differs("type", got, fact.Type)
	}
	var enum []string
	for _, value := range s.Enum {
		var text string
		if err := json.Unmarshal(value.Raw, &text); err != nil {
			differs("enum value", string(value.Raw), "a string")
		}
		enum = append(enum, text)
	}
	slices.Sort(enum)
	want := slices.Sorted(slices.Values(fact.Enum))
	if !slices.Equal(enum, want) {
		differs("enum", enum, want)
	}
	if got := unquote(s.Default); got != fact.Default {
		differs("default", got, fact.Default)
	}
	if got := number(s.Minimum); got != fact.Minimum {
		differs("minimum", got, fact.Minimum)
	}
	if got := number(s.Maximum); got != fact.Maximum {
		differs("maximum", got, fact.Maximum)
	}
	if s.Nullable != fact.Nullable {
		differs("nullable", s.Nullable, fact.Nullable)
	}
	if required != fact.Required {
		differs("required", required, fact.Required)
	}
	return problems
}

func unquote(value *apiextensionsv1.JSON) string {
	if value == nil {
		return ""
	}
	return strings.Trim(string(value.Raw), `"`)
}

func number(value *float64) string {
	if value == nil {
		return ""
	}
	return strconv.FormatFloat(*value, 'f', -1, 64)
}

// sameShape lists maps whose values the description gives by pointing to another map.
var sameShape = map[string]string{
	"InstanceManager status.instanceReplicas": "status.instanceEngines",
	"InstanceManager status.instances":        "status.instanceEngines",
}

func TestTheSchemaHasNothingElse(t *testing.T) {
	f, crds := load(t)
	used := map[string]bool{}
	for _, k := range f.Kinds {
		known := map[string]bool{"apiVersion": true, "kind": true, "metadata": true, "spec": true, "status": true}
		for _, fact := range k.Fields {
			known[fact.Path] = true
		}
		root := crds[k.Kind].Spec.Versions[0].Schema.OpenAPIV3Schema
		for _, path := range walk(root, "") {
			outermost, _, _ := strings.Cut(path, ".*")
			shape := sameShape[k.Kind+" "+outermost]
			if known[path] || known[strings.TrimSuffix(path, "[]")] || strings.Contains(path, "onditions[]") || shape != "" {
				continue
			}
			if differences[k.Kind+" "+path] == "" {
				t.Errorf("%s: field %s is not in the description and has no reason", k.Kind, path)
			}
			used[k.Kind+" "+path] = true
		}
	}
	for key := range differences {
		if !used[key] && !strings.Contains(key, " column ") {
			t.Errorf("difference %q is listed but does not exist", key)
		}
	}
	for key, model := range sameShape {
		kind, path, _ := strings.Cut(key, " ")
		root := crds[kind].Spec.Versions[0].Schema.OpenAPIV3Schema
		_, a, _ := find(root, path+".*")
		_, b, _ := find(root, model+".*")
		if a == nil || b == nil || !equality.Semantic.DeepEqual(a, b) {
			t.Errorf("values of %s do not have the shape of %s", key, model)
		}
	}
}

// walk returns the paths of all properties below a schema in the notation of find.
func walk(s *apiextensionsv1.JSONSchemaProps, prefix string) (paths []string) {
	for name, property := range s.Properties {
		path := prefix + name
		paths = append(paths, path)
		paths = append(paths, walk(&property, path+".")...)
		if property.Items != nil {
			paths = append(paths, walk(property.Items.Schema, path+"[].")...)
		}
		if property.AdditionalProperties != nil && property.AdditionalProperties.Schema != nil {
			paths = append(paths, walk(property.AdditionalProperties.Schema, path+".*.")...)
		}
	}
	return paths
}

func TestImmutableFields(t *testing.T) {
	_, crds := load(t)
	rules := map[string]string{
		"Volume spec.backingImage":        "self == oldSelf",
		"Volume spec.encrypted":           "self == oldSelf",
		"Volume spec.topologyRequirement": "self == oldSelf",
		"RecurringJob spec.retainAge":     "!self.startsWith('-')",
	}
	for key, rule := range rules {
		kind, path, _ := strings.Cut(key, " ")
		_, s, _ := find(crds[kind].Spec.Versions[0].Schema.OpenAPIV3Schema, path)
		if s == nil || len(s.XValidations) != 1 || s.XValidations[0].Rule != rule {
			t.Errorf("%s: want the one rule %s", key, rule)
		}
	}
}

func TestKindsAgreeWithCRDs(t *testing.T) {
	_, crds := load(t)
	kinds := v1beta2.Kinds()
	if len(kinds) != len(crds) {
		t.Errorf("%d kinds are registered, want %d", len(kinds), len(crds))
	}
	for _, k := range kinds {
		c := crds[k.Name]
		if c == nil {
			t.Errorf("no CRD of kind %s", k.Name)
			continue
		}
		n := c.Spec.Names
		if n.Plural != k.Plural || n.Singular != k.Singular || n.ShortNames[0] != k.ShortName {
			t.Errorf("%s: registered as %s, %s, %s; the CRD says %s, %s, %s", k.Name, k.Plural, k.Singular, k.ShortName,
				n.Plural, n.Singular, n.ShortNames[0])
		}
	}
}
