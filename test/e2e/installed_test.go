package e2e

import (
	"testing"

	"ankole.storage/test/testcluster"
)

// TestInstalled: scenarios on a cluster that is as users install it, and so has certificates
// between its parts, which TestCluster has not.
func TestInstalled(t *testing.T) {
	t.Parallel()
	c := startWith(t, testcluster.Options{Manager: true, NodeGrace: nodeGrace, Images: engineImages(t)})
	c.managersRun()
	c.each(t, []scenario{
		{"BackingImage", scenarioBackingImage}, {"UpgradeUnderLoad", upgradeUnderLoad},
		{"F2", scenarioF2}, {"A11", scenarioA11}, {"F15", scenarioBound}, {"F4", scenarioF4},
	})
}
