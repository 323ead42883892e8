package volume

import (
	"testing"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/resttest"
)

// TestEveryFieldIsConverted sets one field after the other, each alone, and compares what that
// changes in the conversion with the page.
func TestEveryFieldIsConverted(t *testing.T) {
	q, p := resttest.Request(t), &resttest.Fields{}
	wish := resource.VolumeSpec{Name: "demo", Size: "1Gi"}
	resttest.Section(p, "a client's volume, as an object", resource.Volume{VolumeSpec: wish},
		func(in resource.Volume) any {
			v, err := newVolume("ns", in)
			if err != nil {
				t.Fatal(err)
			}
			return map[string]any{"name": v.Name, "labels": v.Labels, "spec": v.Spec}
		})
	resttest.Section(p, "a volume, as a client sees it", lh.Volume{}, func(v lh.Volume) any {
		return volumeView(q, volumeParts{volume: &v})
	})
	resttest.Section(p, "an engine, as a part of a volume", lh.Engine{}, func(e lh.Engine) any {
		return volumeView(q, volumeParts{volume: &lh.Volume{}, engines: []lh.Engine{e}})
	})
	resttest.Section(p, "a replica, as a part of a volume", lh.Replica{}, func(r lh.Replica) any {
		return volumeView(q, volumeParts{volume: &lh.Volume{}, replicas: []lh.Replica{r}})
	})
	resttest.Section(p, "an attachment, as a part of a volume", lh.VolumeAttachment{}, func(a lh.VolumeAttachment) any {
		return volumeView(q, volumeParts{volume: &lh.Volume{}, attachment: &a})
	})
	resttest.Section(p, "a recurring job, as a client sees it", lh.RecurringJob{}, func(o lh.RecurringJob) any {
		return recurringJobView(q, &o)
	})
	p.Compare(t)
}
