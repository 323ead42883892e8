package backingimage

import (
	"testing"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

// TestEveryFieldIsConverted sets one field after the other, each alone, and compares what that
// changes in the conversion with the page.
func TestEveryFieldIsConverted(t *testing.T) {
	q, p := resttest.Request(t), &resttest.Fields{}
	resttest.Section(p, "a backing image, as a client sees it", lh.BackingImage{}, func(o lh.BackingImage) any {
		return backingImageView(q, &o)
	})
	p.Compare(t)
}
