package e2e

import (
	"os"
	"testing"

	"ankole.storage/test/testcluster"
)

// networkEverywhere: every new cluster whose test does not deal with storage networks itself gets
// one, since all tests hold with one too (C14).
var networkEverywhere = os.Getenv("ANKOLE_E2E_NETWORK") != ""

// useStorageNetwork sets a storage network and waits until data goes over it.
func (c *cluster) useStorageNetwork() {
	c.t.Helper()
	c.managersRun()
	n := &networkTest{c, kubernetesOf(c.t, c)}
	n.set(storageNetworks[0])
	n.await("set", storageNetworks[0])
}

// TestC14 runs scenarios of A, D and F once more on a cluster with a storage network; others of D
// are in TestLocality/C14, E1 is in TestProposalsTour. Afterwards every instance manager is still
// on it.
func TestC14(t *testing.T) {
	t.Parallel()
	c := startWith(t, testcluster.Options{Manager: true, NodeGrace: nodeGrace, PodNetworks: storageNetworks})
	c.useStorageNetwork()
	c.each(t, []scenario{
		{"A1", scenarioA1}, {"A2", scenarioA2}, {"A3", scenarioA3}, {"A13", scenarioA13},
		{"F1", scenarioF1}, {"F3", scenarioF3},
		{"F6", scenarioF6}, {"F7", scenarioF7}, {"A17", scenarioA17}, {"Snapshots", scenarioSnapshots},
		{"F10", scenarioF10}, {"F10Clock", scenarioF10Clock},
		{"F15", scenarioAllReplicas}, {"A9", scenarioA9}, {"A10", scenarioA10}, {"D4", scenarioD4},
		{"C7", func(t *testing.T, c *cluster) {
			n := &networkTest{c, kubernetesOf(t, c)}
			n.create("c14", 32*mib, 3)
			n.attach("c14", "node-1", 3)
			n.dataOn("c14", storageNetworks[0])
			n.detach("c14")
			n.remove("c14")
		}},
	})
	n := &networkTest{c, kubernetesOf(t, c)}
	n.await("afterwards", storageNetworks[0])
}
