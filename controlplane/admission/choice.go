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
}

// Check refuses a word that is none of the choice's.
func (c Choice) Check(word string) error {
	if !slices.Contains(c.Words, word) {
		return fmt.Errorf("invalid %s: %q; use one of %s", c.What, word, strings.Join(c.Words, ", "))
	}
	return nil
}

// override are the words of a field that overrides a setting.
var override = []string{"ignored", "enabled", "disabled"}

// The choices of a volume's fields.
var (
	LocalityChoice     = Choice{"data locality mode", []string{"disabled", "best-effort", "strict-local"}}
	AccessChoice       = Choice{"access mode", []string{"rwo", "rwx", "rwop"}}
	FrontendChoice     = Choice{"volume frontend specified", []string{"blockdev", "iscsi"}}
	IntegrityChoice    = Choice{"snapshot data integrity", []string{"ignored", "disabled", "enabled", "fast-check"}}
	CompressionChoice  = Choice{"backup compression method", []string{"none", "lz4", "gzip"}}
	UnmapChoice        = Choice{"unmap mark snapshot chain removed option", override}
	NodeAffinityChoice = Choice{"replica soft anti-affinity option", override}
	ZoneAffinityChoice = Choice{"replica zone soft anti-affinity option", override}
	DiskAffinityChoice = Choice{"replica disk soft anti-affinity option", override}
	FreezeChoice       = Choice{"freeze filesystem for snapshot option", override}
	OfflineChoice      = Choice{"offline rebuilding option", override}
	RestoreJobsChoice  = Choice{"restore volume recurring job option", override}
	BalanceChoice      = Choice{"replica auto balance option",
		[]string{"ignored", "disabled", "least-effort", "best-effort"}}
)
