package manager

import (
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// remembering remembers which resource a kind is. Every read of a cache asks for that, and the
// mapper goes through all groups of the API server for each answer.
type remembering struct {
	meta.RESTMapper
	known sync.Map // *meta.RESTMapping by kindVersion
}

type kindVersion struct {
	kind    schema.GroupKind
	version string
}

func newMapper(api *rest.Config, h *http.Client) (meta.RESTMapper, error) {
	m, err := apiutil.NewDynamicRESTMapper(api, h)
	return &remembering{RESTMapper: m}, err
}

// RESTMapping returns the resource of a kind. With several versions, or none, the mapper chooses.
func (m *remembering) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if len(versions) != 1 {
		return m.RESTMapper.RESTMapping(kind, versions...)
	}
	key := kindVersion{kind, versions[0]}
	if known, ok := m.known.Load(key); ok {
		return known.(*meta.RESTMapping), nil
	}
	found, err := m.RESTMapper.RESTMapping(kind, versions...)
	if err == nil {
		m.known.Store(key, found)
	}
	return found, err
}
