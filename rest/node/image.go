package node

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/admission"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/rest/findings"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

func (a *API) listEngineImages(q *serve.Request) (any, error) {
	views, err := a.engineImageViews(q)
	if err != nil {
		return nil, err
	}
	return serve.Collection(q, resource.TypeEngineImage, views), nil
}

func (a *API) engineImageViews(q *serve.Request) ([]resource.EngineImage, error) {
	var images lh.EngineImageList
	if err := q.Objects.List(q.Context(), &images); err != nil {
		return nil, fmt.Errorf("listing engine images: %w", err)
	}
	def, err := DefaultEngineImage(q.Context(), q.Objects, a.EngineImage)
	if err != nil {
		return nil, err
	}
	serve.SortByName(images.Items)
	var views []resource.EngineImage
	for i := range images.Items {
		views = append(views, engineImageView(q, &images.Items[i], def))
	}
	return views, nil
}

// DefaultEngineImage returns the image new volumes get: that of the setting, another one until the
// setting is filled.
func DefaultEngineImage(ctx context.Context, o *serve.Objects, otherwise string) (string, error) {
	image, err := o.Setting(ctx, setting.DefaultEngineImage)
	if err != nil {
		return "", err
	}
	return cmp.Or(image, otherwise), nil
}

func (a *API) getEngineImage(q *serve.Request) (any, error) {
	return a.oneEngineImage(q, q.Params["name"])
}

func (a *API) oneEngineImage(q *serve.Request, name string) (any, error) {
	var image lh.EngineImage
	if err := q.Objects.Get(q.Context(), name, &image); err != nil {
		return nil, fmt.Errorf("failed to get engine image %s: %w", name, err)
	}
	def, err := DefaultEngineImage(q.Context(), q.Objects, a.EngineImage)
	if err != nil {
		return nil, err
	}
	return engineImageView(q, &image, def), nil
}

func engineImageView(q *serve.Request, e *lh.EngineImage, defaultImage string) resource.EngineImage {
	s := &e.Status
	out := resource.EngineImage{Resource: q.Envelope(resource.TypeEngineImage, e.Name, resource.WhenAlways), Name: e.Name,
		Image: e.Spec.Image, Default: e.Spec.Image == defaultImage, State: string(s.State), RefCount: s.RefCount,
		NoRefSince: s.NoRefSince, Incompatible: s.Incompatible, Conditions: serve.Conditions(s.Conditions),
		NodeDeploymentMap: s.NodeDeploymentMap, OwnerID: s.OwnerID, Version: s.Version, GitCommit: s.GitCommit,
		BuildDate:     s.BuildDate,
		CLIAPIVersion: s.CLIAPIVersion, CLIAPIMinVersion: s.CLIAPIMinVersion, ControllerAPIVersion: s.ControllerAPIVersion,
		ControllerAPIMinVersion: s.ControllerAPIMinVersion, DataFormatVersion: s.DataFormatVersion,
		DataFormatMinVersion: s.DataFormatMinVersion}
	out.WaitsFor = findings.EngineImage(&out)
	return out
}

func (a *API) createEngineImage(q *serve.Request) (any, error) {
	var in resource.EngineImage
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	image := strings.TrimSpace(in.Image)
	if err := naming.CheckImage(image); err != nil {
		return nil, fmt.Errorf("unable to create engine image: %w", err)
	}
	name := naming.EngineImageName(image)
	e := &lh.EngineImage{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: q.Objects.Namespace,
		Labels: naming.EngineImageLabels(name)},
		Spec: lh.EngineImageSpec{Image: image}}
	if err := q.Objects.Create(q.Context(), e); err != nil {
		return nil, fmt.Errorf("unable to create engine image %s: %w", image, err)
	}
	return a.oneEngineImage(q, e.Name)
}

// deleteEngineImage answers 200 for an image that does not exist, as clients that delete twice
// expect.
func (a *API) deleteEngineImage(q *serve.Request) (any, error) {
	name := q.Params["name"]
	err := a.removeEngineImage(q.Context(), q.Objects, name)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("unable to delete engine image %s: %w", name, err)
	}
	return nil, nil
}

func (a *API) removeEngineImage(ctx context.Context, o *serve.Objects, name string) error {
	var e lh.EngineImage
	if err := o.Get(ctx, name, &e); err != nil {
		return err
	}
	def, err := DefaultEngineImage(ctx, o, a.EngineImage)
	if err != nil {
		return err
	}
	if err := admission.CheckEngineImageDeletion(&e, def); err != nil {
		return err
	}
	return o.Client.Delete(ctx, &e)
}
