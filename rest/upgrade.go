package rest

import (
	"context"
	"fmt"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/conflict"
	"ankole.storage/controlplane/process/engineupgrade"
	"ankole.storage/controlplane/setting/stored"
	"ankole.storage/rest/resource"
)

// upgradeEngine asks for another engine image. It returns before the volume has it: image and
// currentImage differ until then. Going back to currentImage takes that back.
func upgradeEngine(q *request) (any, error) {
	var in resource.EngineUpgradeInput
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	name := q.params["name"]
	err := conflict.Retry(func() error {
		f, err := q.server.upgradeFacts(q.Context(), name)
		if err != nil {
			return err
		}
		def, err := q.server.defaultEngineImage(q.Context())
		if err != nil {
			return err
		}
		if err := f.Manual(in.Image, def); err != nil {
			return err
		}
		v := f.Volume.DeepCopy()
		v.Spec.Image, v.Spec.EngineImage = in.Image, ""
		return q.server.cfg.Client.Update(q.Context(), v)
	})
	if err != nil {
		return nil, fmt.Errorf("cannot upgrade engine for volume %s using image %s: %w", name, in.Image, err)
	}
	return q.volume(name)
}

// upgradeFacts reads what an upgrade is judged by.
func (s *Server) upgradeFacts(ctx context.Context, name string) (engineupgrade.Facts, error) {
	p, err := s.volumeParts(ctx, name)
	if err != nil {
		return engineupgrade.Facts{}, err
	}
	f := engineupgrade.Facts{Volume: p.volume, Engines: p.engines, Replicas: p.replicas}
	var images lh.EngineImageList
	if err := s.list(ctx, &images); err != nil {
		return f, fmt.Errorf("listing engine images: %w", err)
	}
	f.Images = images.Items
	f.Settings, err = stored.Read(ctx, s.cfg.Reader, s.cfg.Namespace)
	return f, err
}
