package node

import (
	"testing"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

// TestEveryFieldIsConverted sets one field after the other, each alone, and compares what that
// changes in the conversion with the page.
func TestEveryFieldIsConverted(t *testing.T) {
	q, p := resttest.Request(t), &resttest.Fields{}
	node := lh.Node{}
	node.Spec.Disks = map[string]lh.DiskSpec{resttest.Word: {}}
	resttest.Section(p, "a node, as a client sees it", node, func(n lh.Node) any { return nodeView(q, &n, nil, true) })
	resttest.Section(p, "an engine image, as a client sees it", lh.EngineImage{}, func(e lh.EngineImage) any {
		return engineImageView(q, &e, "default")
	})
	resttest.Section(p, "an instance manager, as a client sees it", lh.InstanceManager{}, func(im lh.InstanceManager) any {
		return instanceManagerView(q, &im)
	})
	p.Compare(t)
}
