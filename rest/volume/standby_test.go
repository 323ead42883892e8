package volume_test

import (
	"testing"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

// TestActivate: the volume is an ordinary one from then on, with the frontend that is asked for;
// the controller says when it holds the newest backup.
func TestActivate(t *testing.T) {
	const path = "/v1/volumes/demo?action=activate"
	standby := func(v *lh.Volume) {
		v.Spec.Standby, v.Spec.Frontend, v.Spec.FromBackup = true, "", "vfs:///x?backup=b1&volume=w"
		v.Status.IsStandby, v.Status.RestoreRequired = true, true
	}
	for name, c := range map[string]struct {
		edit func(*lh.Volume)
		body string
		want string
	}{
		"an ordinary volume": {func(*lh.Volume) {}, `{"frontend":"blockdev"}`, "volume demo is already in active mode"},
		"twice": {func(v *lh.Volume) { standby(v); v.Spec.Standby = false }, `{"frontend":"blockdev"}`,
			"volume demo is being activated"},
		"without a frontend":     {standby, `{}`, "invalid frontend"},
		"with an unknown one":    {standby, `{"frontend":"nvme"}`, "invalid frontend"},
		"with one of the others": {standby, `{"frontend":"iscsi"}`, "invalid frontend"},
	} {
		objects := resttest.Volume("demo")
		c.edit(objects[0].(*lh.Volume))
		f := newFixture(t, resttest.Cluster(objects...)...)
		t.Run(name, func(*testing.T) { f.Refused(f.Do("POST", path, c.body), 500, c.want) })
	}
	objects := resttest.Volume("demo")
	standby(objects[0].(*lh.Volume))
	f := newFixture(t, resttest.Cluster(objects...)...)
	f.Do("POST", path, `{"frontend":"blockdev"}`)
	var v lh.Volume
	f.Read("demo", &v)
	if v.Spec.Standby || v.Spec.Frontend != lh.VolumeFrontendBlockDev || !v.Status.IsStandby {
		t.Errorf("%+v", v.Spec)
	}
}
