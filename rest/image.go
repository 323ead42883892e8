package rest

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/admission"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/rest/resource"
)

func listEngineImages(q *request) (any, error) {
	views, err := q.engineImageViews()
	if err != nil {
		return nil, err
	}
	return collection(q, resource.TypeEngineImage, views), nil
}

func (q *request) engineImageViews() ([]resource.EngineImage, error) {
	var images lh.EngineImageList
	if err := q.server.list(q.Context(), &images); err != nil {
		return nil, fmt.Errorf("listing engine images: %w", err)
	}
	def, err := q.server.defaultEngineImage(q.Context())
	if err != nil {
		return nil, err
	}
	byName(images.Items)
	var views []resource.EngineImage
	for i := range images.Items {
		views = append(views, engineImageView(q, &images.Items[i], def))
	}
	return views, nil
}

// defaultEngineImage returns the image new volumes get.
func (s *Server) defaultEngineImage(ctx context.Context) (string, error) {
	image, err := s.settingValue(ctx, setting.DefaultEngineImage)
	if err != nil {
		return "", err
	}
	return orText(image, s.cfg.EngineImage), nil
}

func getEngineImage(q *request) (any, error) { return q.engineImage(q.params["name"]) }

func (q *request) engineImage(name string) (any, error) {
	var image lh.EngineImage
	if err := q.server.get(q.Context(), name, &image); err != nil {
		return nil, fmt.Errorf("failed to get engine image %s: %w", name, err)
	}
	def, err := q.server.defaultEngineImage(q.Context())
	if err != nil {
		return nil, err
	}
	return engineImageView(q, &image, def), nil
}

func engineImageView(q *request, e *lh.EngineImage, defaultImage string) resource.EngineImage {
	s := &e.Status
	return resource.EngineImage{Resource: q.envelope(resource.TypeEngineImage, e.Name, resource.WhenAlways), Name: e.Name,
		Image: e.Spec.Image, Default: e.Spec.Image == defaultImage, State: string(s.State), RefCount: s.RefCount,
		NoRefSince: s.NoRefSince, Incompatible: s.Incompatible, Conditions: conditionList(s.Conditions),
		NodeDeploymentMap: s.NodeDeploymentMap, OwnerID: s.OwnerID, Version: s.Version, GitCommit: s.GitCommit,
		BuildDate:     s.BuildDate,
		CLIAPIVersion: s.CLIAPIVersion, CLIAPIMinVersion: s.CLIAPIMinVersion, ControllerAPIVersion: s.ControllerAPIVersion,
		ControllerAPIMinVersion: s.ControllerAPIMinVersion, DataFormatVersion: s.DataFormatVersion,
		DataFormatMinVersion: s.DataFormatMinVersion}
}

func createEngineImage(q *request) (any, error) {
	var in resource.EngineImage
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	image := strings.TrimSpace(in.Image)
	if err := naming.CheckImage(image); err != nil {
		return nil, fmt.Errorf("unable to create engine image: %w", err)
	}
	name := naming.EngineImageName(image)
	e := &lh.EngineImage{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: q.server.cfg.Namespace,
		Labels: naming.EngineImageLabels(name)},
		Spec: lh.EngineImageSpec{Image: image}}
	if err := q.server.create(q.Context(), e); err != nil {
		return nil, fmt.Errorf("unable to create engine image %s: %w", image, err)
	}
	return q.engineImage(e.Name)
}

// deleteEngineImage answers 200 for an image that does not exist, as clients that delete twice
// expect.
func deleteEngineImage(q *request) (any, error) {
	name := q.params["name"]
	err := q.server.deleteEngineImage(q.Context(), name)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("unable to delete engine image %s: %w", name, err)
	}
	return nil, nil
}

func (s *Server) deleteEngineImage(ctx context.Context, name string) error {
	var e lh.EngineImage
	if err := s.get(ctx, name, &e); err != nil {
		return err
	}
	def, err := s.defaultEngineImage(ctx)
	if err != nil {
		return err
	}
	if err := admission.CheckEngineImageDeletion(&e, def); err != nil {
		return err
	}
	return s.cfg.Client.Delete(ctx, &e)
}
