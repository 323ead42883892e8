package e2e

import "testing"

func TestTmpBound(t *testing.T) {
	c := start(t)
	t.Run("Bound", func(t *testing.T) { scenarioBound(t, c) })
	t.Run("All", func(t *testing.T) { scenarioAllReplicas(t, c) })
}
