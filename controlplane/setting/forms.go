package setting

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// forms checks the text of settings that have a form of their own.
var forms = map[string]func(string) error{
	DefaultDataPath:    checkDataPath,
	DefaultControlPath: checkControlPath,
	ManagerURL:         checkBaseURL,
	BlacklistForAutoDeletePodWhenVolumeDetachedUnexpectedly: checkKinds,
	CSIAllowedTopologyKeys:                   checkTopologyKeys,
	TaintToleration:                          func(v string) error { _, err := ParseTolerations(v); return err },
	SystemManagedComponentsNodeSelector:      func(v string) error { _, err := ParseNodeSelector(v); return err },
	SystemManagedCSIComponentsResourceLimits: checkCSIResources,
	StorageNetwork:                           func(v string) error { _, _, err := ParseNetwork(v); return err },
	EndpointNetworkForRWXVolume:              func(v string) error { _, _, err := ParseNetwork(v); return err },
	SnapshotDataIntegrityCronJob:             checkTimes,
	OrphanResourceAutoDeletion:               checkOrphanKinds,
	APIHostNames:                             checkHostNames,
}

// cleaners bring values that may be spelt in several ways into one spelling.
var cleaners = map[string]func(string) string{
	DefaultDataPath:    path.Clean,
	DefaultControlPath: path.Clean,
	LogLevel:           cleanLogLevel,
}

func cleanLogLevel(value string) string {
	for _, level := range byName[LogLevel].Options {
		if strings.EqualFold(level, value) {
			return level
		}
	}
	return value
}

func checkDataPath(value string) error {
	if !path.IsAbs(value) || path.Clean(value) == "/" {
		return errors.New("should be an absolute path other than /")
	}
	return nil
}

func checkControlPath(value string) error {
	if err := checkDataPath(value); err != nil {
		return err
	}
	if clean := path.Clean(value); clean == "/dev" || strings.HasPrefix(clean, "/dev/") {
		return errors.New("should not be below /dev")
	}
	return nil
}

func checkBaseURL(value string) error {
	u, err := url.Parse(value)
	switch {
	case err != nil:
		return errors.New("should be an URL of the form scheme://host[:port]")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("scheme should be http or https")
	case u.Hostname() == "":
		return errors.New("host is missing")
	case u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New("should have nothing behind the host and port")
	}
	return nil
}

// list splits a value and drops blanks around the entries.
func list(value, separator string) []string {
	entries := strings.Split(value, separator)
	for i := range entries {
		entries[i] = strings.TrimSpace(entries[i])
	}
	return entries
}

func checkKinds(value string) error {
	for _, entry := range list(value, ";") {
		slash := strings.LastIndex(entry, "/")
		if slash <= 0 || slash == len(entry)-1 {
			return fmt.Errorf("%q should have the form apiVersion/Kind", entry)
		}
	}
	return nil
}

func checkTopologyKeys(value string) error {
	for _, key := range list(value, ",") {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			return fmt.Errorf("%q is not the key of a label: %s", key, problems[0])
		}
	}
	return nil
}

// Kinds of orphans that OrphanResourceAutoDeletion can name.
const (
	OrphanKindReplicaData = "replica-data"
	OrphanKindInstance    = "instance"
)

func checkOrphanKinds(value string) error {
	for _, kind := range list(value, ";") {
		if kind != OrphanKindReplicaData && kind != OrphanKindInstance {
			return fmt.Errorf("%q should be %s or %s", kind, OrphanKindReplicaData, OrphanKindInstance)
		}
	}
	return nil
}

// ParseTolerations reads the value of TaintToleration: key=value:effect or key:effect, with ;
// between them. Without an effect all of the taint's are tolerated, without a key all taints. Empty
// gives none.
func ParseTolerations(value string) ([]corev1.Toleration, error) {
	tolerations := []corev1.Toleration{}
	if strings.TrimSpace(value) == "" {
		return tolerations, nil
	}
	for _, entry := range list(value, ";") {
		subject, effect, found := strings.Cut(entry, ":")
		if !found {
			return nil, fmt.Errorf("toleration %q should have the form key=value:effect or key:effect", entry)
		}
		if strings.Contains(entry, ",") {
			return nil, fmt.Errorf("toleration %q has a comma: put a ; between tolerations", entry)
		}
		t := corev1.Toleration{Effect: corev1.TaintEffect(strings.TrimSpace(effect)), Operator: corev1.TolerationOpExists}
		known := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute,
			corev1.TaintEffectPreferNoSchedule, ""}
		if !slices.Contains(known, t.Effect) {
			return nil, fmt.Errorf(
				"invalid effect %q of toleration %q, should be NoSchedule, NoExecute or PreferNoSchedule", effect, entry)
		}
		key, equals, hasValue := strings.Cut(subject, "=")
		t.Key = strings.TrimSpace(key)
		if hasValue {
			t.Operator, t.Value = corev1.TolerationOpEqual, strings.TrimSpace(equals)
			if problems := validation.IsValidLabelValue(t.Value); len(problems) > 0 {
				return nil, fmt.Errorf("invalid value of toleration %q: %s", entry, problems[0])
			}
		}
		if problems := validation.IsQualifiedName(t.Key); len(problems) > 0 && (t.Key != "" || hasValue) {
			return nil, fmt.Errorf("invalid key of toleration %q: %s", entry, problems[0])
		}
		tolerations = append(tolerations, t)
	}
	return tolerations, nil
}

// ParseNodeSelector reads the value of SystemManagedComponentsNodeSelector: label:value, with ;
// between them. Empty gives an empty selector.
func ParseNodeSelector(value string) (map[string]string, error) {
	selector := map[string]string{}
	if strings.TrimSpace(value) == "" {
		return selector, nil
	}
	for _, entry := range list(value, ";") {
		key, labelValue, found := strings.Cut(entry, ":")
		key, labelValue = strings.TrimSpace(key), strings.TrimSpace(labelValue)
		if !found {
			return nil, fmt.Errorf("node selector %q should have the form label:value", entry)
		}
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			return nil, fmt.Errorf("invalid label of node selector %q: %s", entry, problems[0])
		}
		if problems := validation.IsValidLabelValue(labelValue); len(problems) > 0 {
			return nil, fmt.Errorf("invalid value of node selector %q: %s", entry, problems[0])
		}
		if _, twice := selector[key]; twice {
			return nil, fmt.Errorf("label %q is given twice", key)
		}
		selector[key] = labelValue
	}
	return selector, nil
}

// ParseNetwork reads the value of StorageNetwork or EndpointNetworkForRWXVolume. Empty gives two
// empty strings: the network of the cluster.
func ParseNetwork(value string) (namespace, name string, err error) {
	value = strings.TrimSpace(value)
	if value == "" {
		return "", "", nil
	}
	namespace, name, _ = strings.Cut(value, "/")
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "", "", fmt.Errorf("%s must be in <NAMESPACE>/<NETWORK-ATTACHMENT-DEFINITION> format", value)
	}
	return namespace, name, nil
}

// csiComponents are the containers whose resources can be limited.
var csiComponents = []string{"csi-attacher", "csi-provisioner", "csi-resizer", "csi-snapshotter", "longhorn-csi-plugin",
	"node-driver-registrar", "longhorn-liveness-probe"}

func checkCSIResources(value string) error {
	byComponent := map[string]corev1.ResourceRequirements{}
	decoder := json.NewDecoder(strings.NewReader(value))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&byComponent); err != nil || decoder.More() {
		return errors.New("should be a JSON object from CSI component to its requests and limits")
	}
	for component := range byComponent {
		if !slices.Contains(csiComponents, component) {
			return fmt.Errorf("%q should be one of %s", component, strings.Join(csiComponents, ", "))
		}
	}
	return nil
}

// ParseHostNames returns the names in a value of APIHostNames.
func ParseHostNames(value string) []string {
	var names []string
	for name := range strings.SplitSeq(value, ";") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func checkHostNames(value string) error {
	for _, name := range ParseHostNames(value) {
		if name != "*" && len(validation.IsDNS1123Subdomain(strings.ToLower(name))) > 0 {
			return fmt.Errorf("%q should be a host name without a port, or *", name)
		}
	}
	return nil
}

// ManagedPods says where Pods of the system may run. Values that cannot be parsed never pass
// validation; nothing is then asked for.
func ManagedPods(v Values) (tolerations []corev1.Toleration, selector map[string]string) {
	tolerations, _ = ParseTolerations(v.String(TaintToleration))
	selector, _ = ParseNodeSelector(v.String(SystemManagedComponentsNodeSelector))
	return tolerations, selector
}
