package system

import (
	"testing"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

// TestEveryFieldIsConverted sets one field after the other, each alone, and compares what that
// changes in the conversion with the page.
func TestEveryFieldIsConverted(t *testing.T) {
	q, p := resttest.Request(t), &resttest.Fields{}
	resttest.Section(p, "a system backup, as a client sees it", lh.SystemBackup{}, func(o lh.SystemBackup) any {
		return systemBackupView(q, &o)
	})
	resttest.Section(p, "a system restore, as a client sees it", lh.SystemRestore{}, func(o lh.SystemRestore) any {
		return systemRestoreView(q, &o)
	})
	resttest.Section(p, "a support bundle, as a client sees it", lh.SupportBundle{}, func(o lh.SupportBundle) any {
		return supportBundleView(q, &o)
	})
	p.Compare(t)
}
