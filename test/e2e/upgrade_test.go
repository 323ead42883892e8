package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
)

// Engine images of engineImages. All run the built engine: engineNext as it is;
// engineFar says that it understands another controller API; an engine of engineCrashing dies when
// it is told that the one before has left, one of engineHanging stops before that one is asked to.
const (
	engineDefault  = "ankole/engine:dev"
	engineNext     = "ankole/engine:next"
	engineFar      = "ankole/engine:far"
	engineCrashing = "ankole/engine:crashing"
	engineHanging  = "ankole/engine:hanging"
)

// upgradeUnderLoad brings attached volumes under writers that verify to another engine image
// and back: by hand, by themselves within a limit of one (E1, E10), with an engine that is killed
// on the way (E8), and refused where images do not fit (E11). The writers see no error and one
// device.
func upgradeUnderLoad(t *testing.T, c *cluster) {
	c.addEngineImages(engineNext, engineFar, engineCrashing)
	c.setting("allow-live-engine-upgrade-on-same-image-commit", "true")
	volumes := []string{"up1", "up2", "up3"}
	loads := c.openForUpgrade(volumes)
	check := func(what string) {
		t.Helper()
		for _, name := range volumes {
			loads[name].Check()
			c.awaitUsable(name, "node-1", 3)
			loads[name].AwaitMore(t, 50)
			t.Logf("%s: longest pause of %s %v", what, name, loads[name].TakePause(time.Now()))
		}
	}

	for _, name := range volumes {
		c.upgrade(name, engineNext)
	}
	for _, name := range volumes {
		c.awaitEngineImage(name, engineNext)
	}
	check("by hand")

	c.upgradesWithin(1, volumes, engineDefault)
	check("automatically")
	if _, err := c.rest.UpgradeEngine(context.Background(), "up1", engineNext); err == nil ||
		!strings.Contains(err.Error(), "the default engine image") {
		t.Errorf("by hand to another image while automatic upgrades are on: %v", err)
	}
	c.setting(autoUpgrade, "0")
	c.awaitReferences(engineNext, 0)

	c.upgradeInVain("up1", engineCrashing)
	check("with an engine that is killed")

	if _, err := c.rest.UpgradeEngine(context.Background(), "up2", engineFar); err == nil ||
		!strings.Contains(err.Error(), "detach the volume") {
		t.Errorf("to an image that does not fit: %v", err)
	}
	for _, name := range volumes {
		loads[name].Finish()
	}
	c.detach("up2")
	c.upgrade("up2", engineFar)
	c.awaitEngineImage("up2", engineFar)
	c.attach("up2", "node-2", 3)
	c.detach("up2")
	c.identical("up2", 3)
	for _, name := range volumes {
		c.remove(name)
	}
}

// upgradeInVain asks for an image whose engine does not get to the end when it takes a volume over,
// and goes back to the one before (E8).
func (c *cluster) upgradeInVain(name, image string) {
	c.t.Helper()
	before := c.engine(name).Spec.UpgradeAttempt
	c.upgrade(name, image)
	c.eventually("the upgrade of "+name+" has failed or was given up", func(context.Context) error {
		e, v := c.engine(name), c.volume(name)
		if v.CurrentImage == image {
			c.t.Fatalf("%s has taken %s over", image, name)
		}
		if e.Spec.UpgradeAttempt <= before || e.Status.FailedUpgradeAttempt <= before && v.Image == image {
			return fmt.Errorf("attempt %d, wanted image %s, image %s", e.Spec.UpgradeAttempt, v.Image, v.CurrentImage)
		}
		return nil
	})
	if v := c.volume(name); v.Image != engineDefault {
		c.upgrade(name, engineDefault)
	}
	c.awaitEngineImage(name, engineDefault)
}

// openForUpgrade attaches volumes to node-1 and has a writer that verifies on each. Without block
// devices nothing is upgraded while it is attached.
func (c *cluster) openForUpgrade(volumes []string) map[string]*rig.Load {
	c.t.Helper()
	loads, at := map[string]*rig.Load{}, map[string]string{}
	for _, name := range volumes {
		c.create(name, 64*mib, 3)
		at[name] = "node-1"
	}
	c.attachAll(at)
	for _, name := range volumes {
		endpoint := c.awaitUsable(name, "node-1", 3)
		if strings.HasPrefix(endpoint, "nbd+unix:") {
			lack.Skip(c.t, "only block devices pass from engine to engine, and this host offers none: the endpoint is ", endpoint)
		}
		d, t := c.device(endpoint), c.t
		loads[name] = rig.StartLoad(t, d, 64*mib, 16)
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return loads
}

// stoppingEngine is the engine program with the places where ANKOLE_STOP_AT stops it.
var stoppingEngine = sync.OnceValues(func() (string, error) { return rig.Build("engine", rig.StopPoints) })

// engineImages makes engine images, each a directory.
func engineImages(t *testing.T) string {
	t.Helper()
	built, err := filepath.Abs(rig.Program(t, "engine"))
	if err != nil {
		t.Fatal(err)
	}
	// A program that is installed is the script itself, which finds the directory in the mount map.
	const script = `#!/bin/sh
case "$*" in
install*)
	dir=$(printf %s "$ANKOLE_MOUNTS" | sed -n 's|.*"/data":"\([^"]*\)".*|\1|p')
	cp "$0" "$dir/.new" && mv "$dir/.new" "$dir/longhorn" && exec tail -f /dev/null
	;;
version*)
	BUILT "$@" | VERSION
	exit
	;;
*--upgrade*)
	UPGRADE
	;;
esac
exec BUILT "$@"
`
	stopping, err := stoppingEngine()
	if err != nil {
		t.Fatal(err)
	}
	const run = `exec BUILT "$@"`
	failing := func(at string) string { return "ANKOLE_STOP_AT=" + at + ` exec ` + stopping + ` "$@"` }
	dir := t.TempDir()
	for image, edit := range map[string][2]string{
		engineNext:     {"cat", run},
		engineFar:      {`sed -E 's/"controllerAPI(Min)?Version": *[0-9]+/"controllerAPI\1Version":99/g'`, run},
		engineCrashing: {"cat", failing("told:die")},
		engineHanging:  {"cat", failing("prepared:stop")},
	} {
		at := filepath.Join(dir, naming.CanonicalImage(image))
		text := strings.NewReplacer("BUILT", built, "VERSION", edit[0]).Replace(
			strings.ReplaceAll(script, "UPGRADE", edit[1]))
		config, err := json.Marshal(map[string]any{"entrypoint": []string{}, "cmd": []string{"engine"}, "env": []string{}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(at, "bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string]string{"bin/engine": text, "image.json": string(config)} {
			if err := os.WriteFile(filepath.Join(at, name), []byte(content), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// addEngineImages installs engine images on all nodes, at the same time.
func (c *cluster) addEngineImages(images ...string) {
	c.t.Helper()
	for _, image := range images {
		ei := &longhorn.EngineImage{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: naming.EngineImageName(image)},
			Spec: longhorn.EngineImageSpec{Image: image}}
		if err := c.kube.Create(context.Background(), ei); err != nil {
			c.t.Fatal(err)
		}
	}
	for _, image := range images {
		c.awaitDeployed(image)
	}
}

// awaitDeployed waits until all nodes have an engine image.
func (c *cluster) awaitDeployed(image string) {
	c.t.Helper()
	c.eventually(image+" is deployed", func(ctx context.Context) error {
		var ei longhorn.EngineImage
		err := c.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: naming.EngineImageName(image)}, &ei)
		if err == nil && !longhorn.IsConditionTrue(ei.Status.Conditions, longhorn.EngineImageConditionReady) {
			err = fmt.Errorf("%+v", ei.Status)
		}
		return err
	})
}

func (c *cluster) setting(name, value string) {
	c.t.Helper()
	if _, err := c.rest.SetSetting(context.Background(), name, value); err != nil {
		c.t.Fatal(err)
	}
}

// upgrade asks for another engine image, until it is granted: a volume has just become healthy.
func (c *cluster) upgrade(name, image string) {
	c.t.Helper()
	c.eventually("upgrade of "+name+" to "+image+" is granted", func(ctx context.Context) error {
		_, err := c.rest.UpgradeEngine(ctx, name, image)
		return err
	})
}

// awaitEngineImage waits until volume, engine and all replicas have an image.
func (c *cluster) awaitEngineImage(name, image string) {
	c.t.Helper()
	c.eventually(name+" has image "+image, func(ctx context.Context) error {
		v := c.volume(name)
		if v.Image != image || v.CurrentImage != image || len(v.Replicas) != v.NumberOfReplicas {
			return fmt.Errorf("image %s, current %s, %d replicas, %s", v.Image, v.CurrentImage, len(v.Replicas),
				v.Conditions["EngineUpgrade"].Message)
		}
		for _, r := range v.Replicas {
			if r.Image != image {
				return fmt.Errorf("replica %s has image %s", r.Name, r.Image)
			}
		}
		if e := c.engine(name); e.Spec.Image != image || v.State == "attached" && e.Status.CurrentImage != image {
			return fmt.Errorf("engine has image %s, current %s: %s", e.Spec.Image, e.Status.CurrentImage,
				e.Status.LastUpgradeError)
		}
		return nil
	})
}

// upgradesWithin sets the limit of automatic upgrades, waits until volumes have an image, and
// judges by every change of every Volume how many of a node were upgraded at once.
func (c *cluster) upgradesWithin(limit int, volumes []string, image string) {
	c.t.Helper()
	log := c.recordVolumes()
	c.setting(autoUpgrade, strconv.Itoa(limit))
	for _, name := range volumes {
		c.awaitEngineImage(name, image)
	}
	log.check(c.t)
	log.within(c.t, 0, limit)
}

// awaitReferences waits until an image is referred to by so many objects.
func (c *cluster) awaitReferences(image string, want int) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("%s has %d references", image, want), func(ctx context.Context) error {
		var ei longhorn.EngineImage
		key := client.ObjectKey{Namespace: namespace, Name: naming.EngineImageName(image)}
		if err := c.kube.Get(ctx, key, &ei); err != nil {
			return err
		}
		if ei.Status.RefCount != want {
			return fmt.Errorf("%d references", ei.Status.RefCount)
		}
		return nil
	})
}
