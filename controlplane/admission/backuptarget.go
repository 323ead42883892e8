package admission

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

var backupTargets = kind[*v1beta2.BackupTarget]{
	plural:     "backuptargets",
	create:     func() *v1beta2.BackupTarget { return &v1beta2.BackupTarget{} },
	onValidate: allThree,
	onMutate:   createUpdate,
	mutator: func(_ context.Context, _ world, r request[*v1beta2.BackupTarget]) error {
		s := &r.new.Spec
		if r.created() || r.old.Spec.BackupTargetURL != s.BackupTargetURL {
			s.BackupTargetURL = completeTargetURL(s.BackupTargetURL)
		}
		if r.new.DeletionTimestamp == nil {
			addFinalizer(r.new)
			orElse(&s.PollInterval, defaultPollInterval)
		}
		return nil
	},
	checker: func(ctx context.Context, w world, r request[*v1beta2.BackupTarget]) error {
		facts, err := w.targetFacts(ctx, r)
		if err != nil {
			return err
		}
		if r.deleted() {
			return CheckTargetDeletion(r.old, facts)
		}
		if err := CheckBackupTarget(r.old, r.new, facts); err != nil { // nothing is old at creation
			return err
		}
		return w.origins.checkDirectory(r.old, r.new)
	},
}

// defaultPollInterval is how often a target is compared with its store where nobody says.
const defaultPollInterval = "300s"

// TargetFacts is what the cluster says about a backup target.
type TargetFacts struct {
	// Others are the other targets.
	Others []v1beta2.BackupTarget
	// Secret is what spec.credentialSecret names, nil if there is no such secret yet.
	Secret *corev1.Secret
	// Standby are the names of the volumes that follow a backup on this target.
	Standby []string
}

// targetFacts reads what a request is judged by.
func (w world) targetFacts(ctx context.Context, r request[*v1beta2.BackupTarget]) (f TargetFacts, err error) {
	if !r.created() {
		if f.Standby, err = w.standbyVolumes(ctx, r.old.Name); err != nil {
			return f, err
		}
	}
	if !r.deleted() {
		if f.Others, err = w.otherTargets(ctx, r.new.Name); err != nil {
			return f, err
		}
		f.Secret, err = w.credentials(ctx, r.new)
	}
	return f, err
}

// credentials reads the Secret that a target names, nil if there is none yet. The installation says
// which ones managers may read.
func (w world) credentials(ctx context.Context, t *v1beta2.BackupTarget) (*corev1.Secret, error) {
	name := t.Spec.CredentialSecret
	secret, err := find(ctx, w, name, &corev1.Secret{})
	if apierrors.IsForbidden(err) {
		return nil, invalid("backup target %s: the managers may not read Secret %s: name it in value backupTargetSecrets of the chart, "+
			"or in rule \"secrets\" of Role longhorn-role", t.Name, name)
	}
	return secret, err
}

func (w world) otherTargets(ctx context.Context, name string) ([]v1beta2.BackupTarget, error) {
	var list v1beta2.BackupTargetList
	if err := w.List(ctx, &list, client.InNamespace(w.namespace)); err != nil {
		return nil, fmt.Errorf("list backup targets: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(t v1beta2.BackupTarget) bool { return t.Name == name }), nil
}

func (w world) standbyVolumes(ctx context.Context, target string) (names []string, err error) {
	var list v1beta2.VolumeList
	if err := w.List(ctx, &list, client.InNamespace(w.namespace)); err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	for i := range list.Items {
		v := &list.Items[i]
		at := v.Spec.BackupTargetName
		if at == "" {
			at = naming.BackupTarget
		}
		if at == target && (v.Status.IsStandby || v.Spec.Standby && v.Status.State == v1beta2.VolumeStateNew) {
			names = append(names, v.Name)
		}
	}
	return names, nil
}

func targetMoved(old, t *v1beta2.BackupTarget) bool {
	return old.Spec.BackupTargetURL != t.Spec.BackupTargetURL || old.Spec.CredentialSecret != t.Spec.CredentialSecret
}

// CheckBackupTarget refuses a backup target that cannot be (old nil: creation).
func CheckBackupTarget(old, t *v1beta2.BackupTarget, f TargetFacts) error {
	if t.DeletionTimestamp != nil {
		return nil
	}
	return firstOf(
		func() error {
			if old != nil {
				return nil
			}
			if err := naming.CheckName(t.Name); err != nil {
				return invalid("invalid name %s for backup target: %v", t.Name, err)
			}
			return nil
		},
		func() error { return checkPollInterval(t) },
		func() error {
			switch {
			case old != nil && !targetMoved(old, t):
				return nil // judged when it was set
			case len(f.Standby) > 0:
				return forbidden("cannot modify BackupTarget since there are existing standby volumes: %s",
					strings.Join(f.Standby, ", "))
			}
			return firstOf(
				func() error { return checkTargetURL(t, f.Others) },
				func() error { return checkCredentials(t, f.Secret) },
			)
		},
	)
}

func checkPollInterval(t *v1beta2.BackupTarget) error {
	text := t.Spec.PollInterval
	if text == "" {
		return nil
	}
	if d, err := time.ParseDuration(text); err != nil || d < 0 {
		return invalid("invalid backup target polling interval %q of backup target %s: write a duration such as 300s, 0 for none",
			text, t.Name)
	}
	return nil
}

// targetSchemes are the kinds of backup stores.
var targetSchemes = []string{"s3", "nfs", "cifs", "azblob", schemeDirectory}

// schemeDirectory is that of a directory, which only an administrator of the cluster allows.
const schemeDirectory = "vfs"

func checkTargetURL(t *v1beta2.BackupTarget, others []v1beta2.BackupTarget) error {
	text := t.Spec.BackupTargetURL
	if text == "" {
		return nil // turned off
	}
	u, err := url.Parse(text)
	if err != nil {
		return invalid("invalid URL %q of backup target %s: %v", text, t.Name, err)
	}
	if !slices.Contains(targetSchemes, u.Scheme) ||
		(u.Host == "") != (u.Scheme == schemeDirectory) || u.Scheme == schemeDirectory && strings.Trim(u.Path, "/") == "" {
		return invalid("invalid URL %q of backup target %s: write s3://bucket@region/path, nfs://host:/path, cifs://host/share "+
			"or azblob://container@endpoint/", text, t.Name)
	}
	bad := "$,"
	if u.Scheme == "cifs" {
		bad = "," // shares of administrators end with $
	}
	if strings.ContainsAny(u.Path, bad) {
		return invalid("invalid URL %q of backup target %s: its path contains one of %s", text, t.Name, bad)
	}
	for i := range others {
		o := &others[i]
		if targetPlace(o.Spec.BackupTargetURL) == targetPlace(text) {
			return invalid("backup target %s is at %s already, use that one", o.Name, text)
		}
	}
	return nil
}

// targetPlace is what two URLs of the same backup store have in common: all but options, which
// follow "?", and slashes at the end.
func targetPlace(text string) string {
	place, _, _ := strings.Cut(text, "?")
	return strings.TrimRight(place, "/")
}

// checkCredentials refuses values that somebody has pasted with a line's end. A secret that does
// not exist yet is accepted.
func checkCredentials(t *v1beta2.BackupTarget, secret *corev1.Secret) error {
	if secret == nil {
		return nil
	}
	for key, value := range secret.Data {
		if strings.TrimSpace(string(value)) != string(value) {
			return invalid("secret %s of backup target %s: the value of %s begins or ends with a blank or a newline", secret.Name,
				t.Name, key)
		}
	}
	return nil
}

// CheckTargetDeletion refuses to delete what is still needed.
func CheckTargetDeletion(t *v1beta2.BackupTarget, f TargetFacts) error {
	_, uninstall := t.Annotations[naming.AnnotationDeleteBackupTarget]
	switch {
	case t.Name == naming.BackupTarget && !uninstall:
		return forbidden("deleting default backup target is not allowed")
	case len(f.Standby) > 0:
		return forbidden("cannot delete backup target %s since there are existing standby volumes: %s", t.Name,
			strings.Join(f.Standby, ", "))
	}
	return nil
}

// The options of an NFS mount. A hard mount would hang for good when the server is gone.
const (
	nfsOptionsKey  = "nfsOptions="
	nfsHardOption  = "hard"
	nfsSoftOption  = "soft"
	nfsTimeOption  = "timeo=300"
	nfsRetryOption = "retry=2"
)

// completeTargetURL takes hard out of the options in the URL of an NFS store, if there are options,
// and adds what bounds the wait for a server.
func completeTargetURL(text string) string {
	place, query, _ := strings.Cut(text, "?")
	if !strings.HasPrefix(place, "nfs://") {
		return text
	}
	parts := strings.Split(query, "&")
	for i, part := range parts {
		options, found := strings.CutPrefix(part, nfsOptionsKey)
		if !found {
			continue
		}
		var kept []string
		has := map[string]bool{}
		for option := range strings.SplitSeq(options, ",") {
			if option = strings.TrimSpace(option); option != "" && option != nfsHardOption {
				key, _, _ := strings.Cut(option, "=")
				kept, has[key] = append(kept, option), true
			}
		}
		for _, option := range []string{nfsSoftOption, nfsTimeOption, nfsRetryOption} {
			if key, _, _ := strings.Cut(option, "="); !has[key] {
				kept = append(kept, option)
			}
		}
		parts[i] = nfsOptionsKey + strings.Join(kept, ",")
	}
	if query == "" {
		return text
	}
	return place + "?" + strings.Join(parts, "&")
}
