package filesystem

import (
	"fmt"
	"os"
	"testing"

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
	if unavailable = powerdisk.Available(); unavailable == nil {
		var err error
		if run, err = powerdisk.Begin(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	status := m.Run()
	if run != nil {
		if err := run.End(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = max(status, 1)
		}
	}
	os.Exit(status)
}

func needDevices(t *testing.T) {
	t.Helper()
	if unavailable != nil {
		t.Skip(unavailable)
	}
}
