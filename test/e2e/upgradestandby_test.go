package e2e

import (
	"fmt"
	"strings"
)

// standby is case 2, and E4: a volume that follows backups is brought to another image by hand, and
// by itself to none, while others are and it takes the next backup. When it is activated it follows
// the default image, as every volume does.
func (k *casesTest) standby() {
	const source, name, other = "source", "standby", "vol-8"
	k.target("vfs://" + k.t.TempDir())
	defer k.target("")
	k.create(source, caseSize, 2)
	defer k.remove(source)
	endpoint := k.attach(source, caseNode, 2)
	d := k.device(endpoint)
	fill(k.t, d, 1)
	first := k.backUp(source, "s1")
	k.complete(source, first)
	k.command("standby", "create", first, name, "--replicas", "2")
	defer k.remove(name)
	k.follows(name, first)

	k.byHand(engineNext, name, other)
	k.setting(autoUpgrade, fmt.Sprint(limitOfCase))
	k.awaitEngineImage(other, engineDefault)
	if _, err := d.WriteAt([]byte(strings.Repeat("later", 1000)), 4096); err != nil {
		k.t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		k.t.Fatal(err)
	}
	want := hashDevice(k.t, k.cluster, endpoint)
	second := k.backUp(source, "s2")
	k.complete(source, second)
	k.follows(name, second)
	k.detach(source)
	if v := k.volume(name); v.Image != engineNext || v.CurrentImage != engineNext {
		k.t.Errorf("the standby volume has image %s, and is to have %s, after others were upgraded by themselves",
			v.CurrentImage, v.Image)
	}

	k.command("standby", "activate", name)
	k.awaitEngineImage(name, engineDefault)
	holds(k.t, k.cluster, k.attach(name, "node-2", 2), want,
		"the volume that was upgraded and activated has another content than its newest backup")
	k.detach(name)
	k.identical(name, 2)
}
