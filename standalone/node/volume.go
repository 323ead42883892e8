package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/volume/configmap"
	"k8s.io/kubernetes/pkg/volume/secret"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
)

// payload is the content of a volume made of files, in the form the kubelet's atomic writer takes.
type payload = map[string]volumeutil.FileProjection

const (
	// defaultFileMode is what the API defaults to.
	defaultFileMode int32 = 0o644
	// tokenRefreshShare of a token's life after which it is replaced, as in a kubelet.
	tokenRefreshShare = 0.8
)

// token is a ServiceAccount token and when to replace it.
type token struct {
	data    string
	refresh time.Time
}

// volumes materialises a Pod's volumes. Only the Pod's worker uses it.
type volumes struct {
	a      *Agent
	tokens map[string]token // by volume and path
	// refresh is when the first token must be replaced; zero if there is none.
	refresh time.Time
}

// real is the directory (or file) that a volume stands for.
func (v *volumes) real(pod *v1.Pod, vol *v1.Volume) string {
	if vol.HostPath != nil {
		return v.a.resolveHost(vol.HostPath.Path)
	}
	return filepath.Join(v.a.podDir(pod), "volumes", vol.Name)
}

// set brings all volumes to what the Pod and its sources now say. It is called before the first
// container starts and again on every change, and is cheap when nothing changed.
func (v *volumes) set(ctx context.Context, pod *v1.Pod) error {
	v.refresh = time.Time{}
	var errs []error
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		if err := v.setOne(ctx, pod, vol); err != nil {
			errs = append(errs, fmt.Errorf("MountVolume.SetUp failed for volume %q: %w", vol.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (v *volumes) setOne(ctx context.Context, pod *v1.Pod, vol *v1.Volume) error {
	dir := v.real(pod, vol)
	if vol.HostPath != nil {
		return prepareHostPath(dir, vol.HostPath)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if vol.EmptyDir != nil {
		return nil
	}
	files, err := v.collect(ctx, pod, vol)
	if err != nil {
		return err
	}
	w, err := volumeutil.NewAtomicWriter(dir, fmt.Sprintf("pod %s/%s volume %s", pod.Namespace, pod.Name, vol.Name))
	if err != nil {
		return err
	}
	return w.Write(files, nil)
}

// collect gathers the files of a Secret, ConfigMap, downward API or projected volume.
func (v *volumes) collect(ctx context.Context, pod *v1.Pod, vol *v1.Volume) (payload, error) {
	switch {
	case vol.Secret != nil:
		s := vol.Secret
		return v.secret(ctx, pod, s.SecretName, s.Items, s.DefaultMode, s.Optional)
	case vol.ConfigMap != nil:
		c := vol.ConfigMap
		return v.configMap(ctx, pod, c.Name, c.Items, c.DefaultMode, c.Optional)
	case vol.DownwardAPI != nil:
		return v.downward(pod, vol.DownwardAPI.Items, vol.DownwardAPI.DefaultMode)
	case vol.Projected != nil:
		return v.projected(ctx, pod, vol)
	}
	return nil, errors.New("this kind of volume is not supported by process nodes " +
		"(supported: hostPath, emptyDir, secret, configMap, downwardAPI, projected)")
}

func (v *volumes) secret(ctx context.Context, pod *v1.Pod, name string, items []v1.KeyToPath, mode *int32,
	optional *bool) (payload, error) {
	opt := optional != nil && *optional
	s, err := v.a.cfg.Objects.Secret(ctx, pod.Namespace, name)
	if apierrors.IsNotFound(err) && opt {
		s, err = &v1.Secret{}, nil
	}
	if err != nil {
		return nil, err
	}
	return secret.MakePayload(items, s, orDefault(mode), opt)
}

func (v *volumes) configMap(ctx context.Context, pod *v1.Pod, name string, items []v1.KeyToPath, mode *int32,
	optional *bool) (payload, error) {
	opt := optional != nil && *optional
	c, err := v.a.cfg.Objects.ConfigMap(ctx, pod.Namespace, name)
	if apierrors.IsNotFound(err) && opt {
		c, err = &v1.ConfigMap{}, nil
	}
	if err != nil {
		return nil, err
	}
	return configmap.MakePayload(items, c, orDefault(mode), opt)
}

func (v *volumes) downward(pod *v1.Pod, items []v1.DownwardAPIVolumeFile, mode *int32) (payload, error) {
	files := payload{}
	for _, it := range items {
		var value string
		var err error
		switch {
		case it.FieldRef != nil:
			value, err = v.a.fieldValue(pod, it.FieldRef)
		case it.ResourceFieldRef != nil:
			value, err = v.a.resourceValue(pod, "", it.ResourceFieldRef)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", it.Path, err)
		}
		m := it.Mode
		if m == nil {
			m = orDefault(mode)
		}
		files[filepath.Clean(it.Path)] = volumeutil.FileProjection{Data: []byte(value), Mode: *m}
	}
	return files, nil
}

func (v *volumes) projected(ctx context.Context, pod *v1.Pod, vol *v1.Volume) (payload, error) {
	files := payload{}
	mode := vol.Projected.DefaultMode
	for i := range vol.Projected.Sources {
		src := &vol.Projected.Sources[i]
		var part payload
		var err error
		switch {
		case src.Secret != nil:
			part, err = v.secret(ctx, pod, src.Secret.Name, src.Secret.Items, mode, src.Secret.Optional)
		case src.ConfigMap != nil:
			part, err = v.configMap(ctx, pod, src.ConfigMap.Name, src.ConfigMap.Items, mode, src.ConfigMap.Optional)
		case src.DownwardAPI != nil:
			part, err = v.downward(pod, src.DownwardAPI.Items, mode)
		case src.ServiceAccountToken != nil:
			part, err = v.token(ctx, pod, vol.Name, src.ServiceAccountToken)
		default:
			err = errors.New("this kind of projection is not supported by process nodes")
		}
		if err != nil {
			return nil, err
		}
		maps.Copy(files, part)
	}
	return files, nil
}

// token asks the API server for a token bound to the Pod and keeps it for most of its life.
func (v *volumes) token(ctx context.Context, pod *v1.Pod, volume string,
	src *v1.ServiceAccountTokenProjection) (payload, error) {
	key := volume + "/" + src.Path
	t, ok := v.tokens[key]
	if now := time.Now(); !ok || !now.Before(t.refresh) {
		spec := authv1.TokenRequestSpec{
			ExpirationSeconds: src.ExpirationSeconds,
			BoundObjectRef:    &authv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		}
		if src.Audience != "" {
			spec.Audiences = []string{src.Audience}
		}
		account := pod.Spec.ServiceAccountName
		tr, err := v.a.cfg.Client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, account,
			&authv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("token of service account %s: %w", account, err)
		}
		life := tr.Status.ExpirationTimestamp.Sub(now)
		t = token{data: tr.Status.Token, refresh: now.Add(time.Duration(float64(life) * tokenRefreshShare))}
		v.tokens[key] = t
	}
	if v.refresh.IsZero() || t.refresh.Before(v.refresh) {
		v.refresh = t.refresh
	}
	return payload{filepath.Clean(src.Path): {Data: []byte(t.data), Mode: 0o600}}, nil
}

func orDefault(mode *int32) *int32 {
	if mode != nil {
		return mode
	}
	m := defaultFileMode
	return &m
}
