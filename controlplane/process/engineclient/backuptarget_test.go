package engineclient_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	enginebinaryv1 "ankole.storage/api/rpc/enginebinary/v1"
	"ankole.storage/controlplane/process/engineclient"
)

// store is an engine binary that knows one thing to print.
type store struct {
	result *enginebinaryv1.RunResponse
	err    error
	got    *enginebinaryv1.RunRequest
}

func (s *store) Run(_ context.Context, _ string, r *enginebinaryv1.RunRequest) (*enginebinaryv1.RunResponse, error) {
	s.got = r
	return s.result, s.err
}

// TestBackupTarget is the table of verbs, what they print, and what that means.
func TestBackupTarget(t *testing.T) {
	const target = "s3://b@r/p"
	secret := map[string]string{"AWS_ACCESS_KEY_ID": "k"}
	type client = engineclient.BackupTargetBinaryClient
	for _, row := range []struct {
		verb, prints string
		do           func(context.Context, client) (any, error)
		want         any
	}{
		{"backups inspect URL", `{"Name":"b1","Size":"42","IsIncremental":true,"Labels":{"a":"b"}}`,
			func(c context.Context, b client) (any, error) { return b.BackupGet(c, "URL", secret) },
			&engineclient.Backup{Name: "b1", Size: "42", IsIncremental: true, Labels: map[string]string{"a": "b"}}},
		{"backups inspect-volume URL", `{"Name":"v","DataStored":"2097152","StorageClassname":"fast"}`,
			func(c context.Context, b client) (any, error) { return b.BackupVolumeGet(c, "URL", secret) },
			&engineclient.BackupVolume{Name: "v", DataStored: "2097152", StorageClassname: "fast"}},
		{"backups ls --volume v " + target, `{"v":{"Name":"v","Backups":{"b2":{},"b1":{}}}}`,
			func(c context.Context, b client) (any, error) {
				return b.BackupNameList(c, target, "v", secret)
			}, []string{"b1", "b2"}},
		{"backups ls --volume-only " + target, `{"w":{},"v":{}}`,
			func(c context.Context, b client) (any, error) {
				return b.BackupVolumeNameList(c, target, secret)
			}, []string{"v", "w"}},
		{"backups ls-backing-image " + target, `["a","b"]`, func(c context.Context, b client) (any, error) {
			return b.BackupImageNameList(c, target, secret)
		}, []string{"a", "b"}},
		{"backups inspect-backing-image URL", `{"Name":"a","Size":"512","Checksum":"0a"}`,
			func(c context.Context, b client) (any, error) { return b.BackupImageGet(c, "URL", secret) },
			&engineclient.BackupImage{Name: "a", Size: 512, Checksum: "0a"}},
		{"backups rm-backing-image URL", "", func(c context.Context, b client) (any, error) {
			return nil, b.BackupImageDelete(c, "URL", secret)
		}, nil},
		{"backups rm URL", "", func(c context.Context, b client) (any, error) {
			return nil, b.BackupDelete(c, "URL", secret)
		}, nil},
		{"backups rm --volume v " + target, "",
			func(c context.Context, b client) (any, error) {
				return nil, b.BackupVolumeDelete(c, target, "v", secret)
			}, nil},
		{"backups verify --bandwidth 7 --for 10s URL", `{"Backups":["b1"],"Done":3,"Total":4,"Next":"ab","FaultCount":1,` +
			`"Hurt":{"b1":1},"ReadBytes":"5","Faults":[{"Kind":"missing","Object":"o","Backups":["b1"],"BackupCount":1}]}`,
			func(c context.Context, b client) (any, error) {
				return b.BackupVerify(c, "URL", engineclient.VerifyPart{BandwidthMiB: 7, For: 10 * time.Second}, secret)
			}, &engineclient.Verified{Backups: []string{"b1"}, Done: 3, Total: 4, Next: "ab", FaultCount: 1,
				Hurt: map[string]int{"b1": 1}, ReadBytes: 5, Faults: []engineclient.StoreFault{{Kind: "missing", Object: "o",
					Backups: []string{"b1"}, BackupCount: 1}}}},
		{"backups verify --bandwidth 0 --for 0s --after ab URL", `{}`,
			func(c context.Context, b client) (any, error) {
				return b.BackupVerify(c, "URL", engineclient.VerifyPart{After: "ab"}, secret)
			}, &engineclient.Verified{}},
	} {
		s := &store{result: &enginebinaryv1.RunResponse{Output: []byte(row.prints)}}
		b := &engineclient.TargetBinary{Runner: s, Node: "node-1", Image: "img"}
		got, err := row.do(t.Context(), b)
		if err != nil || !reflect.DeepEqual(got, row.want) {
			t.Errorf("%s: %+v %v, want %+v", row.verb, got, err, row.want)
		}
		if verb := strings.Join(s.got.Verb, " "); verb != row.verb || !reflect.DeepEqual(s.got.Environment, secret) {
			t.Errorf("ran %q with %v, want %q", verb, s.got.Environment, row.verb)
		}
		for message, want := range map[string]error{
			"error: cannot find backup.cfg": engineclient.ErrNotFound, "error: no route to host": engineclient.ErrUnavailable,
			"error: unknown command \"backups\" for \"longhorn\"": engineclient.ErrInvalid,
		} {
			s.result = &enginebinaryv1.RunResponse{Status: 1, Message: message}
			if _, err := row.do(t.Context(), b); !errors.Is(err, want) || !strings.Contains(err.Error(), message[7:]) {
				t.Errorf("%s: %s gives %v, want %v", row.verb, message, err, want)
			}
		}
	}
	s := &store{result: &enginebinaryv1.RunResponse{Output: []byte(`{"ModificationTime":"2026-01-02T03:04:05Z"}`)}}
	b := &engineclient.TargetBinary{Runner: s, Node: "node-1", Image: "img"}
	m, err := b.BackupConfigMetaGet(t.Context(), "URL", nil)
	if err != nil || m.ModificationTime.Unix() != 1767323045 {
		t.Errorf("%+v %v", m, err)
	}
	s.result.Output = []byte("{}")
	if _, err := b.BackupNameList(t.Context(), target, "v", nil); !errors.Is(err, engineclient.ErrNotFound) {
		t.Errorf("a volume the target does not know: %v", err)
	}
	for run, want := range map[error]error{status.Error(codes.InvalidArgument, "no"): engineclient.ErrInvalid,
		status.Error(codes.ResourceExhausted, "busy"): engineclient.ErrUnavailable} {
		s.err = run
		if _, err := b.BackupGet(t.Context(), "URL", nil); !errors.Is(err, want) ||
			!strings.Contains(err.Error(), status.Convert(run).Message()) {
			t.Errorf("not run: %v, want %v", err, want)
		}
	}
	s.err = nil
	s.result.Output = []byte("no JSON")
	if _, err := b.BackupGet(t.Context(), "URL", nil); !errors.Is(err, engineclient.ErrUnavailable) {
		t.Errorf("no JSON: %v", err)
	}
}
