package cli

import (
	"fmt"
	"strings"
)

// settingError adds where to look for the names and values of settings.
func settingError(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	switch {
	case strings.Contains(text, "is not supported"):
		return fmt.Errorf("%w; list settings with: ankole setting list", err)
	case strings.Contains(text, "with invalid value"), strings.Contains(text, "is read-only"):
		return fmt.Errorf("%w; see what each setting takes with: ankole setting list -o wide", err)
	}
	return err
}
