package admission

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/api/longhorn/v1beta2"
)

func targetAt(name, url, secret string) *v1beta2.BackupTarget {
	return named(&v1beta2.BackupTarget{}, name, nil, func(t *v1beta2.BackupTarget) {
		t.Spec = v1beta2.BackupTargetSpec{BackupTargetURL: url, CredentialSecret: secret, PollInterval: "5m0s"}
	})
}

func secretWith(name, value string) *corev1.Secret {
	return named(&corev1.Secret{}, name, nil, func(s *corev1.Secret) {
		s.Data = map[string][]byte{"AWS_ACCESS_KEY_ID": []byte("us"), "AWS_SECRET_ACCESS_KEY": []byte(value)}
	})
}

// standbyAt is a volume that follows a backup on a target.
func standbyAt(name, target string, edit func(*v1beta2.Volume)) *v1beta2.Volume {
	return namedVolume(name, func(v *v1beta2.Volume) {
		v.Spec.BackupTargetName, v.Spec.Standby, v.Status.IsStandby = target, true, true
		v.Status.State = v1beta2.VolumeStateAttached
		if edit != nil {
			edit(v)
		}
	})
}

// TestDirectoryIsAllowed: a target is a directory only where an administrator has said so.
func TestDirectoryIsAllowed(t *testing.T) {
	const plural = "backuptargets"
	w := worldOf(t)
	expect(t, "none is allowed", asked(t, w, plural, nil, targetAt("new", "vfs:///backups/a", "")), "in none of those")
	w.origins.BackupDirectories = []string{"/backups"}
	for url, want := range map[string]string{"vfs:///backups": "", "vfs:///backups/a": "",
		"vfs:///backupsx": "in none of those", "vfs:///backups/../etc": "in none of those",
		"vfs://host/backups": "write s3://", "vfs:///": "write s3://"} {
		expect(t, url, asked(t, w, plural, nil, targetAt("new", url, "")), want)
	}
	before := targetAt("new", "vfs:///elsewhere", "")
	after := before.DeepCopy()
	after.Spec.PollInterval = "1s"
	expect(t, "one that is there already", asked(t, w, plural, before, after), "")
}

// TestBackupTargets has the rules of new and changed targets.
func TestBackupTargets(t *testing.T) {
	const plural, place = "backuptargets", "s3://b@r/p"
	w := worldOf(t, targetAt("default", "", ""), targetAt("first", "nfs://host:/a/?nfsOptions=soft", ""),
		targetAt("mine", place, ""), secretWith("good", "x y"), secretWith("padded", " x"), secretWith("pasted", "x\n"))
	for _, tt := range []struct{ name, url, secret, want string }{
		{"off", "", "", ""},
		{"s3", "s3://bucket@region/", "", ""},
		{"nfs", "nfs://host:/b", "", ""},
		{"cifs", "cifs://host/share", "", ""},
		{"share of an administrator", "cifs://host/c$", "", ""},
		{"azblob", "azblob://container@endpoint/", "", ""},
		{"credentials", "s3://bucket@region/", "good", ""},
		{"credentials that come later", "s3://bucket@region/", "absent", ""},
		{"no URL", "backups", "", "write s3://bucket@region/path"},
		{"another kind of store", "ftp://host/path", "", "write s3://bucket@region/path"},
		{"no host", "s3:///path", "", "write s3://bucket@region/path"},
		{"no URL at all", "s3://%zz", "", "invalid URL"},
		{"dollar", "s3://b@r/a$b", "", "contains one of $,"},
		{"comma", "nfs://host:/a,b", "", "contains one of $,"},
		{"comma in a share", "cifs://host/a,b", "", "contains one of ,"},
		{"comma in options", "nfs://host:/b?nfsOptions=soft,timeo=1", "", ""},
		{"taken", "nfs://host:/a", "", "backup target first is at nfs://host:/a already"},
		{"taken, with other options", "nfs://host:/a?nfsOptions=hard", "", "backup target first is at"},
		{"credentials with a blank", "s3://bucket@region/", "padded", "the value of AWS_SECRET_ACCESS_KEY begins or ends"},
		{"credentials with a newline", "s3://bucket@region/", "pasted", "the value of AWS_SECRET_ACCESS_KEY begins or ends"},
	} {
		expect(t, tt.name+", new", asked(t, w, plural, nil, targetAt("new", tt.url, tt.secret)), tt.want)
		expect(t, tt.name+", changed", asked(t, w, plural, targetAt("mine", place, ""), targetAt("mine", tt.url, tt.secret)),
			tt.want)
	}
	same := targetAt("mine", place, "pasted")
	expect(t, "as it was", asked(t, w, plural, same, same), "")
	expect(t, "only the secret", asked(t, w, plural, targetAt("mine", place, ""), same), "begins or ends")
	expect(t, "where it was", asked(t, w, plural, same, targetAt("mine", place+"/", "")), "")
	older := targetAt("Mine", "", "")
	expect(t, "older name", asked(t, w, plural, older, older), "")
	expect(t, "name", asked(t, w, plural, nil, targetAt("Mine", "", "")), "invalid name Mine for backup target")
	const refused = "invalid backup target polling interval"
	for interval, want := range map[string]string{"": "", "0": "", "90s": "", "300": refused, "soon": refused,
		"-1s": refused} {
		target := targetAt("new", "", "")
		target.Spec.PollInterval = interval
		expect(t, "interval "+interval, asked(t, w, plural, nil, target), want)
		expect(t, "interval "+interval+", changed", asked(t, w, plural, targetAt("new", "", ""), target), want)
	}
	bad := targetAt("mine", "backups", "")
	expect(t, "under deletion", asked(t, w, plural, same, deleting(bad)), "")
}

// TestSecretsThatManagersMayNotRead: a target that names one is refused, and told what to do.
func TestSecretsThatManagersMayNotRead(t *testing.T) {
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme(t)).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if _, ok := o.(*corev1.Secret); ok && key.Name == "theirs" {
				return apierrors.NewForbidden(corev1.Resource("secrets"), key.Name, errors.New("no right"))
			}
			return c.Get(ctx, key, o, opts...)
		}})
	w := world{Reader: c, cached: c, namespace: namespace}
	expect(t, "ours", asked(t, w, "backuptargets", nil, targetAt("new", "s3://b@r/", "ours")), "")
	expect(t, "theirs", asked(t, w, "backuptargets", nil, targetAt("new", "s3://b@r/", "theirs")),
		"may not read Secret theirs: name it in value backupTargetSecrets")
}

// TestBackupTargetsInUse: where a standby volume reads from stays; the default target, too.
func TestBackupTargetsInUse(t *testing.T) {
	const plural, text = "backuptargets",
		"cannot modify BackupTarget since there are existing standby volumes: follower"
	target, moved := targetAt("default", "s3://b@r/p", ""), targetAt("default", "s3://b@r/q", "")
	for _, tt := range []struct {
		name   string
		volume *v1beta2.Volume
		want   string
	}{
		{"follows it", standbyAt("follower", "default", nil), text},
		{"follows it since before targets had names", standbyAt("follower", "", nil), text},
		{"is about to follow it", standbyAt("follower", "default", func(v *v1beta2.Volume) {
			v.Status.State, v.Status.IsStandby = "", false
		}), text},
		{"was activated", standbyAt("follower", "default", func(v *v1beta2.Volume) { v.Status.IsStandby = false }), ""},
		{"is a new one", standbyAt("follower", "default", func(v *v1beta2.Volume) {
			v.Status.State, v.Status.IsStandby, v.Spec.Standby = "", false, false
		}), ""},
		{"follows another one", standbyAt("follower", "second", nil), ""},
	} {
		w := worldOf(t, target, tt.volume)
		expect(t, tt.name, asked(t, w, plural, target, moved), tt.want)
		expect(t, tt.name+", secret", asked(t, w, plural, target, targetAt("default", "s3://b@r/p", "s")), tt.want)
		polled := target.DeepCopy()
		polled.Spec.PollInterval = "1s"
		expect(t, tt.name+", interval", asked(t, w, plural, target, polled), "")
		uninstalled := target.DeepCopy()
		uninstalled.Annotations = map[string]string{"longhorn.io/delete-backup-target-from-longhorn": ""}
		kept := strings.Replace(tt.want, "modify BackupTarget", "delete backup target default", 1)
		expect(t, tt.name+", deleted", asked(t, w, plural, uninstalled, nil), kept)
		expect(t, tt.name+", default", asked(t, w, plural, target, nil), "deleting default backup target is not allowed")
	}
	w := worldOf(t, targetAt("second", "", ""))
	expect(t, "another one is deleted", asked(t, w, plural, targetAt("second", "", ""), nil), "")
}

// TestBackupTargetsAreCompleted: an NFS store is not waited for without end. An interval is never
// empty.
func TestBackupTargetsAreCompleted(t *testing.T) {
	w := worldOf(t)
	var none *v1beta2.BackupTarget
	for url, want := range map[string]string{
		"":                              "",
		"s3://b@r/p":                    "s3://b@r/p",
		"nfs://host:/a":                 "nfs://host:/a",
		"nfs://host:/a?":                "nfs://host:/a?",
		"nfs://host:/a?nfsOptions=":     "nfs://host:/a?nfsOptions=soft,timeo=300,retry=2",
		"nfs://host:/a?nfsOptions=hard": "nfs://host:/a?nfsOptions=soft,timeo=300,retry=2",
		"nfs://host:/a?nfsOptions=soft, timeo=7 ,,vers=4":  "nfs://host:/a?nfsOptions=soft,timeo=7,vers=4,retry=2",
		"nfs://host:/a?x=1&nfsOptions=retry=9,hard&y=hard": "nfs://host:/a?x=1&nfsOptions=retry=9,soft,timeo=300&y=hard",
		"s3://b@r/p?nfsOptions=hard":                       "s3://b@r/p?nfsOptions=hard",
	} {
		sent := targetAt("new", url, "")
		finalized := func(t *v1beta2.BackupTarget) { t.Finalizers = []string{v1beta2.Finalizer} }
		completed := func(t *v1beta2.BackupTarget) {
			finalized(t)
			t.Spec.BackupTargetURL = want
		}
		completes(t, url, w, "backuptargets", none, sent, completed)
		completes(t, url+", changed", w, "backuptargets", targetAt("new", "s3://b@r/old", ""), sent, completed)
		completes(t, url+", as it was", w, "backuptargets", sent, sent, finalized)
	}
	silent := targetAt("new", "", "")
	silent.Spec.PollInterval = ""
	completes(t, "no interval", w, "backuptargets", none, silent, func(t *v1beta2.BackupTarget) {
		t.Spec.PollInterval, t.Finalizers = "300s", []string{v1beta2.Finalizer}
	})
}
