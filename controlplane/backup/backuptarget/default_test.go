package backuptarget

import (
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// TestDefault: what ConfigMap longhorn-default-resource says is taken over once, and again when it
// says something else; what a user has set stands.
func TestDefault(t *testing.T) {
	const text = "backup-target: s3://b@r/\nbackup-target-credential-secret: aws-secret\nbackupstore-poll-interval: 60\n"
	spec := func(url, secret, poll string) v1beta2.BackupTargetSpec {
		return v1beta2.BackupTargetSpec{BackupTargetURL: url, CredentialSecret: secret, PollInterval: poll}
	}
	noted := func(last string) map[string]string { return map[string]string{naming.AnnotationConfigMapValue: last} }
	for _, tt := range []struct {
		name, text  string
		annotations map[string]string
		has         v1beta2.BackupTargetSpec
		problem     string
		want        *v1beta2.BackupTargetSpec
	}{
		{name: "the first time", text: text, has: spec("", "", "300s"), want: new(spec("s3://b@r/", "aws-secret", "60s"))},
		{name: "a user has chosen before", text: text, has: spec("nfs://x:/y", "", "300s"),
			want: new(spec("nfs://x:/y", "", "300s"))},
		{name: "a user has chosen since", text: text, annotations: noted(text), has: spec("nfs://x:/y", "", "0")},
		{name: "it has changed", text: "backup-target: s3://c@r/\n", annotations: noted(text),
			has: spec("nfs://x:/y", "a", "0"), want: new(spec("s3://c@r/", "", "0"))},
		{name: "it names no place any more", text: "backup-target: \"\"\n", annotations: noted(text),
			has: spec("s3://b@r/", "aws-secret", "60s"), want: new(spec("", "", "60s"))},
		{name: "it never named one", text: "backup-target: \"\"\n", has: spec("nfs://x:/y", "", "0")},
		{name: "it is no YAML", text: "a: [", has: spec("nfs://x:/y", "", "0"), want: new(spec("nfs://x:/y", "", "0"))},
		{name: "the API server refuses it", text: text, has: spec("nfs://x:/y", "", "0"), problem: "no such scheme",
			want: new(spec("nfs://x:/y", "", "0"))},
	} {
		d := parseDefaults(tt.text)
		if tt.problem != "" {
			d.Problem = tt.problem
		}
		o := target(func(t *v1beta2.BackupTarget) { t.Spec, t.Annotations = tt.has, tt.annotations })
		did := (&pass{t: o, s: seen{Default: d}}).takeDefault()
		if (did.Do != nil) != (tt.want != nil) || (d.Problem != "") != (len(did.Events) == 1) {
			t.Errorf("%s: %+v", tt.name, did)
			continue
		}
		if tt.want == nil {
			continue
		}
		got := d.taken(o)
		if got.Spec != *tt.want || d.taken(got) != nil {
			t.Errorf("%s: %+v, want %+v, and then nothing more", tt.name, got.Spec, *tt.want)
		}
	}
	if d := (*defaults)(nil).taken(target(nil)); d != nil {
		t.Errorf("without a ConfigMap: %+v", d)
	}
}
