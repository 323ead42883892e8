package admission

import (
	"fmt"
	"slices"
	"strings"
)

// Choice is a field of a volume that is one of several words. Clients of the REST API read the same
// texts as those of kubectl.
type Choice struct {
	// What names the field in messages.
	What  string
	Words []string
	// NotBuilt are words that clients know and this version cannot serve, each with what it lacks.
	NotBuilt map[string]string
}

// Check refuses a word that is none of the choice's.
func (c Choice) Check(word string) error {
	if lacks := c.NotBuilt[word]; lacks != "" {
		return fmt.Errorf("invalid %s: %q: this version has no %s; use one of %s", c.What, word, lacks,
			strings.Join(c.Words, ", "))
	}
	if !slices.Contains(c.Words, word) {
		return fmt.Errorf("invalid %s: %q; use one of %s", c.What, word, strings.Join(c.Words, ", "))
	}
	return nil
}

// override are the words of a field that overrides a setting.
var override = []string{"ignored", "enabled", "disabled"}

// The choices of a volume's fields.
var (
	LocalityChoice = Choice{What: "data locality mode", Words: []string{"disabled", "best-effort", "strict-local"}}
	AccessChoice   = Choice{What: "access mode", Words: []string{"rwo", "rwx", "rwop"}}
	FrontendChoice = Choice{What: "volume frontend specified", Words: []string{"blockdev"},
		NotBuilt: map[string]string{"iscsi": "iSCSI target"}}
	IntegrityChoice = Choice{What: "snapshot data integrity",
		Words: []string{"ignored", "disabled", "enabled", "fast-check"}}
	EngineChoice       = Choice{What: "data engine", Words: []string{"v1"}}
	CloneChoice        = Choice{What: "clone mode", Words: []string{"full-copy"}}
	CompressionChoice  = Choice{What: "backup compression method", Words: []string{"none", "lz4", "gzip"}}
	UnmapChoice        = Choice{What: "unmap mark snapshot chain removed option", Words: override}
	NodeAffinityChoice = Choice{What: "replica soft anti-affinity option", Words: override}
	ZoneAffinityChoice = Choice{What: "replica zone soft anti-affinity option", Words: override}
	DiskAffinityChoice = Choice{What: "replica disk soft anti-affinity option", Words: override}
	FreezeChoice       = Choice{What: "freeze filesystem for snapshot option", Words: override}
	OfflineChoice      = Choice{What: "offline rebuilding option", Words: override}
	RestoreJobsChoice  = Choice{What: "restore volume recurring job option", Words: override}
	BalanceChoice      = Choice{What: "replica auto balance option",
		Words: []string{"ignored", "disabled", "least-effort", "best-effort"}}
)
