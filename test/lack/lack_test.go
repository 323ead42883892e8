package lack

import (
	"fmt"
	"strings"
	"testing"
)

// recorder notes how a test ended.
type recorder struct{ ended string }

func (*recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.ended = "fatal: " + fmt.Sprintf(format, args...)
}

func (r *recorder) Skipf(format string, args ...any) {
	r.ended = "skip: " + fmt.Sprintf(format, args...)
}

func (r *recorder) Logf(format string, args ...any) { r.ended = "log: " + fmt.Sprintf(format, args...) }

func TestMissing(t *testing.T) {
	tests := []struct {
		name, ci string
		do       func(Tester)
		want     string
	}{
		{
			"skipped on any machine",
			"",
			func(t Tester) { Skip(t, "fio is ", "not installed") },
			"skip: fio is not installed",
		},
		{
			"a failure in CI",
			"1",
			func(t Tester) { Skip(t, "fio is not installed") },
			"fatal: fio is not installed: in CI",
		},
		{
			"less on any machine",
			"",
			func(t Tester) { Less(t, "no block devices") },
			"log: less than all is tested: no block",
		},
		{
			"less is a failure in CI",
			"1",
			func(t Tester) { Less(t, "no block devices") },
			"fatal: less than all is tested: no",
		},
		{
			"what CI cannot have",
			"1",
			func(t Tester) { Skip(t, "database of known vulnerabilities") },
			"skip: database of known",
		},
		{
			"less, of what CI cannot have",
			"1",
			func(t Tester) { Less(t, "CAP_SYS_RESOURCE: ext4 does not grow") },
			"log: less than all is tested: CAP_SYS_RESOURCE",
		},
		{
			"later, in CI too",
			"1",
			func(t Tester) { Later(t, "run with -deep") },
			"skip: not in this form: run with -deep",
		},
		{"unfit, in CI too", "1", func(t Tester) { Unfit(t, "no FUA") }, "skip: not for this one: no FUA"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(Variable, tt.ci)
			var r recorder
			if tt.do(&r); !strings.HasPrefix(r.ended, tt.want) {
				t.Errorf("ended with %q, want %q…", r.ended, tt.want)
			}
		})
	}
}

func TestAbsent(t *testing.T) {
	all, err := parse(list)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Error("the list of what CI cannot have is not read")
	}
	for _, bad := range []string{"no reason", "(: no pattern", "blank:  "} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
