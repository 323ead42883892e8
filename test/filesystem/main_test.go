package filesystem

import (
	"os"
	"testing"

	"ankole.storage/test/lack"
	"ankole.storage/test/powerdisk"
)

var (
	run         *powerdisk.Run
	unavailable error
)

func TestMain(m *testing.M) {
	switch os.Getenv(childVariable) {
	case "exercise":
		os.Exit(exercise())
	case "sync":
		os.Exit(syncFiles())
	}
	os.Exit(powerdisk.Main(m, func(r *powerdisk.Run, why error) error {
		run, unavailable = r, why
		return nil
	}))
}

func needDevices(t *testing.T) {
	t.Helper()
	if unavailable != nil {
		lack.Skip(t, unavailable)
	}
}
