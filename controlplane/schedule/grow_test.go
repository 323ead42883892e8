package schedule

import (
	"math"
	"testing"
)

func TestMayGrow(t *testing.T) {
	p := Policy{OverProvisioningPercent: 100, MinimalAvailablePercent: 25}
	disk := Disk{Maximum: 1000, Available: 800, Reserved: 0, Scheduled: 300}
	for _, tt := range []struct {
		name  string
		bytes int64
		edit  func(d *Disk, p *Policy)
		want  bool
	}{
		{"nothing", 0, nil, true},
		{"to the minimum that stays free", 550, nil, true},
		{"beyond it", 551, nil, false},
		{"to the sum of sizes", 700, func(_ *Disk, p *Policy) { p.MinimalAvailablePercent = 0 }, true},
		{"beyond the sum of sizes", 701, func(_ *Disk, p *Policy) { p.MinimalAvailablePercent = 0 }, false},
		{"to what is free, by what may be provisioned", 300, func(d *Disk, p *Policy) {
			d.Available, d.Scheduled, p.MinimalAvailablePercent = 300, 0, 0
		}, true},
		{"beyond it, by what may be provisioned", 301, func(d *Disk, p *Policy) {
			d.Available, d.Scheduled, p.MinimalAvailablePercent = 300, 0, 0
		}, false},
		{"with over-provisioning to the disk's end", 300, func(d *Disk, p *Policy) {
			d.Available, p.OverProvisioningPercent, p.MinimalAvailablePercent = 300, 200, 0
		}, true},
		{"not beyond", 301, func(d *Disk, p *Policy) {
			d.Available, p.OverProvisioningPercent, p.MinimalAvailablePercent = 300, 200, 0
		}, false},
		{"reserved space lowers the limit", 400, func(d *Disk, p *Policy) { d.Reserved = 300 }, true},
		{"by just that", 401, func(d *Disk, p *Policy) { d.Reserved = 300 }, false},
		{"to the limit with what is used", 300, func(d *Disk, p *Policy) {
			d.Reserved, d.Available, d.Scheduled, p.MinimalAvailablePercent = 500, 300, 0, 0
		}, true},
		{"beyond it", 301, func(d *Disk, p *Policy) {
			d.Reserved, d.Available, d.Scheduled, p.MinimalAvailablePercent = 500, 300, 0, 0
		}, false},
		{"less than nothing", -1, nil, false},
		{"more than there are numbers", math.MaxInt64, nil, false},
		{"an unknown disk", 0, func(d *Disk, _ *Policy) { d.Maximum, d.Scheduled = 0, 0 }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, policy := disk, p
			if tt.edit != nil {
				tt.edit(&d, &policy)
			}
			if got := d.MayGrow(tt.bytes, policy); got != tt.want {
				t.Errorf("%v for %d bytes on %+v with %+v", got, tt.bytes, d, policy)
			}
		})
	}
}
