package volume

import (
	"context"
	"fmt"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/conflict"
	"ankole.storage/controlplane/process/engineupgrade"
	"ankole.storage/controlplane/setting/stored"
	"ankole.storage/rest/node"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

// upgradeEngine asks for another engine image. It returns before the volume has it: image and
// currentImage differ until then. Going back to currentImage takes that back.
func (a *API) upgradeEngine(q *serve.Request) (any, error) {
	var in resource.EngineUpgradeInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	name := q.Params["name"]
	err := conflict.Retry(func() error {
		f, err := upgradeFacts(q.Context(), q.Objects, name)
		if err != nil {
			return err
		}
		def, err := node.DefaultEngineImage(q.Context(), q.Objects, a.EngineImage)
		if err != nil {
			return err
		}
		if err := f.Manual(in.Image, def); err != nil {
			return err
		}
		v := f.Volume.DeepCopy()
		v.Spec.Image, v.Spec.EngineImage = in.Image, ""
		return q.Objects.Client.Update(q.Context(), v)
	})
	if err != nil {
		return nil, fmt.Errorf("cannot upgrade engine for volume %s using image %s: %w", name, in.Image, err)
	}
	return show(q, name)
}

// upgradeFacts reads what an upgrade is judged by.
func upgradeFacts(ctx context.Context, o *serve.Objects, name string) (engineupgrade.Facts, error) {
	p, err := readVolume(ctx, o, name)
	if err != nil {
		return engineupgrade.Facts{}, err
	}
	f := engineupgrade.Facts{Volume: p.volume, Engines: p.engines, Replicas: p.replicas}
	var images lh.EngineImageList
	if err := o.List(ctx, &images); err != nil {
		return f, fmt.Errorf("listing engine images: %w", err)
	}
	f.Images = images.Items
	f.Settings, err = stored.Read(ctx, o.Reader, o.Namespace)
	return f, err
}
