// Package guide takes the commands out of pages of docs/guide, so that tests run what users type.
package guide

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// fence is a block of commands on a page.
var fence = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// Script returns all blocks of commands of a page as one script, which ends at the first command
// that fails. A line NAME=value gets the value that set has for the name; each name in set must be
// assigned once.
func Script(page string, set map[string]string) (string, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return "", err
	}
	script, blocks := "set -eux\n", fence.FindAllStringSubmatch(string(text), -1)
	if len(blocks) == 0 {
		return "", fmt.Errorf("%s has no block of commands", filepath.Base(page))
	}
	for _, b := range blocks {
		script += b[1]
	}
	lines := strings.Split(script, "\n")
	for name, value := range set {
		i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, name+"=") })
		if i < 0 {
			return "", fmt.Errorf("%s does not set %s", filepath.Base(page), name)
		}
		lines[i] = name + "='" + strings.ReplaceAll(value, "'", `'\''`) + "'"
	}
	return strings.Join(lines, "\n"), nil
}
