package manager

import (
	"log/slog"
	"testing"

	"ankole.storage/controlplane/setting"
)

// TestLogLevels: every option of setting log-level is a level of the log.
func TestLogLevels(t *testing.T) {
	want := map[string]slog.Level{"Panic": slog.LevelError, "Fatal": slog.LevelError, "Error": slog.LevelError,
		"Warn": slog.LevelWarn, "Info": slog.LevelInfo, "Debug": slog.LevelDebug, "Trace": slog.LevelDebug}
	d, err := setting.Lookup(setting.LogLevel)
	if err != nil {
		t.Fatal(err)
	}
	for _, option := range d.Options {
		if level, ok := want[option]; !ok || levelOf(option) != level {
			t.Errorf("%s is level %v, want %v", option, levelOf(option), level)
		}
	}
}
