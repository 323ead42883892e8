package demo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"ankole.storage/rest/resource"
)

const (
	limitSetting = "concurrent-automatic-engine-upgrade-per-node-limit"
	sameSetting  = "allow-live-engine-upgrade-on-same-image-commit"
	// tourLimit is how many upgrades of a node may be under way at once.
	tourLimit = 1
	// lineWidth is the width of a time line in characters.
	lineWidth = 50
)

// span is the time of one volume's upgrade, from the beginning of the time line on.
type span struct {
	volume, node string
	from, to     time.Duration
}

// otherImage finds or makes the engine image to upgrade to, and waits until it can be started.
func (t *tour) otherImage(ctx context.Context) (other, def string, err error) {
	images, err := t.Client.EngineImages(ctx)
	if err != nil {
		return "", "", err
	}
	for _, i := range images {
		if i.Default {
			def = i.Image
		} else if i.Image == t.Image || t.Image == "" && i.State == "deployed" && !i.Incompatible {
			other = i.Image
		}
	}
	if def == "" {
		return "", "", errors.New("the cluster has no default engine image")
	}
	if other == "" {
		other = t.Image
		if other == "" {
			other = def + "-next"
		}
		made, err := t.Client.CreateEngineImage(ctx, other)
		if err != nil {
			return "", "", err
		}
		t.later("deleting engine image "+other, func(ctx context.Context) error { return t.removeImage(ctx, made.Name) })
	}
	err = t.wait(ctx, "engine image "+other+" is on all nodes (another one is used with --image NAME)", lookEvery,
		func() (bool, string, error) {
			i, err := t.image(ctx, other)
			if err != nil {
				return false, "", err
			}
			return i.State == "deployed" && i.Version != "", i.State, nil
		})
	return other, def, err
}

// image reads an engine image by the name of the image.
func (t *tour) image(ctx context.Context, name string) (resource.EngineImage, error) {
	images, err := t.Client.EngineImages(ctx)
	if err != nil {
		return resource.EngineImage{}, err
	}
	i := slices.IndexFunc(images, func(i resource.EngineImage) bool { return i.Image == name })
	if i < 0 {
		return resource.EngineImage{}, fmt.Errorf("engine image %s does not exist any more", name)
	}
	return images[i], nil
}

// removeImage deletes an engine image as soon as nothing refers to it.
func (t *tour) removeImage(ctx context.Context, name string) error {
	for {
		err := t.Client.DeleteEngineImage(ctx, name)
		if err == nil {
			return nil
		}
		if pause(ctx, lookEvery) != nil {
			return err
		}
	}
}

// upgradeByHand brings the volumes to another engine image while automatic upgrades are off.
func (t *tour) upgradeByHand(ctx context.Context) error {
	t.say("Upgrade Volume's Engine Image Automatically", "With automatic upgrades off, users upgrade volumes that are in use")
	other, _, err := t.otherImage(ctx)
	if err != nil {
		return err
	}
	if err := t.set(ctx, limitSetting, "0"); err != nil {
		return err
	}
	if err := t.set(ctx, sameSetting, "true"); err != nil {
		return err
	}
	t.takePauses()
	began := time.Now()
	for _, name := range t.names() {
		t.tell("ankole volume upgrade %s --image %s", name, other)
		err := t.wait(ctx, "the upgrade is granted", lookEvery, func() (bool, string, error) {
			_, err := t.Client.UpgradeEngine(ctx, name, other)
			if err != nil && ctx.Err() == nil {
				return false, err.Error(), nil // such as that a replica of it is not in sync yet
			}
			return err == nil, "", err
		})
		if err != nil {
			return err
		}
	}
	spans, err := t.watchUpgrades(ctx, began, other, nil)
	if err != nil {
		return err
	}
	t.tell("nothing limits these; the writers' longest waits:")
	t.draw(spans)
	return t.standbyByHand(ctx, other)
}

// upgradeThemselves has the volumes come back to the default image by themselves, one at a time.
func (t *tour) upgradeThemselves(ctx context.Context) error {
	images, err := t.Client.EngineImages(ctx)
	if err != nil {
		return err
	}
	def := images[slices.IndexFunc(images, func(i resource.EngineImage) bool { return i.Default })].Image
	t.say("Upgrade Volume's Engine Image Automatically",
		"They come to the default image by themselves, %d of a node at a time, while their writers go on", tourLimit)
	t.tell("ankole setting set %s %d", limitSetting, tourLimit)
	t.takePauses()
	began := time.Now()
	if err := t.set(ctx, limitSetting, fmt.Sprint(tourLimit)); err != nil {
		return err
	}
	most, looks := 0, 0
	spans, err := t.watchUpgrades(ctx, began, def, func(perNode map[string]int) error {
		looks++
		for node, n := range perNode {
			most = max(most, n)
			if n > tourLimit {
				return fmt.Errorf("%d volumes of %s are upgraded at once, the limit is %d", n, node, tourLimit)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	t.draw(spans)
	t.tell("in %d looks never more than %d at once, and no writer saw an error", looks, most)
	return t.standbyLeftAlone(ctx, def)
}

// takePauses forgets how long the writers have waited until now.
func (t *tour) takePauses() {
	for _, u := range t.users {
		u.writer.takePause()
	}
}

// watchUpgrades follows the volumes until all run an image in sync. Each look is told how many
// upgrades are under way on each node.
func (t *tour) watchUpgrades(ctx context.Context, began time.Time, image string,
	look func(perNode map[string]int) error) ([]span, error) {
	spans := map[string]*span{}
	err := t.wait(ctx, fmt.Sprintf("%d volumes have engine image %s", len(t.users), image), sampleEvery,
		func() (bool, string, error) {
			volumes, err := t.Client.Volumes(ctx)
			if err != nil {
				return false, "", err
			}
			at := time.Since(began)
			perNode, done := map[string]int{}, 0
			for i := range volumes {
				v := &volumes[i]
				if t.users[v.Name] == nil {
					continue
				}
				s := spans[v.Name]
				switch underWay := v.Image != v.CurrentImage; {
				case underWay && s == nil:
					s = &span{volume: v.Name, node: attachedNode(v), from: at, to: at}
					spans[v.Name] = s
					fallthrough
				case underWay:
					s.to = at
					perNode[attachedNode(v)]++
				case v.CurrentImage == image && v.Robustness == "healthy":
					done++
				}
			}
			if look != nil {
				if err := look(perNode); err != nil {
					return false, "", err
				}
			}
			return done == len(t.users), fmt.Sprintf("%d of %d", done, len(t.users)), nil
		})
	var all []span
	for _, name := range sortedNames(spans) {
		all = append(all, *spans[name])
	}
	if err == nil && len(all) != len(t.users) {
		err = fmt.Errorf("%d of %d upgrades were seen under way", len(all), len(t.users))
	}
	return all, err
}

// attachedNode is where a volume's engine is.
func attachedNode(v *resource.Volume) string {
	for _, c := range v.Controllers {
		return c.HostID
	}
	return ""
}

// draw prints a time line, with the longest wait of each volume's user.
func (t *tour) draw(spans []span) {
	for _, line := range timeLine(spans) {
		t.tell("%s", line.text+fmt.Sprintf("   longest wait %4d ms", t.users[line.volume].writer.takePause().Milliseconds()))
	}
}

// drawn is a line of a time line.
type drawn struct{ volume, text string }

// timeLine draws when which volume was upgraded, in the order in which they began.
func timeLine(spans []span) (lines []drawn) {
	spans = slices.Clone(spans)
	slices.SortStableFunc(spans, func(a, b span) int { return int(a.from - b.from) })
	end, width := time.Duration(1), 0
	for _, s := range spans {
		end, width = max(end, s.to), max(width, len(s.volume))
	}
	column := func(d time.Duration) int {
		return min(lineWidth-1, int(math.Round(float64(d)/float64(end)*(lineWidth-1))))
	}
	for _, s := range spans {
		from, to := column(s.from), column(s.to)
		text := fmt.Sprintf("%-*s |%s%s%s| %5.1f s to %4.1f s", width, s.volume, strings.Repeat(".", from),
			strings.Repeat("#", to-from+1), strings.Repeat(".", lineWidth-1-to), s.from.Seconds(), s.to.Seconds())
		lines = append(lines, drawn{s.volume, text})
	}
	return lines
}
