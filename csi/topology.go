package csi

import (
	"context"
	"maps"
	"slices"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"ankole.storage/controlplane/setting"
	"ankole.storage/rest/resource"
)

// Keys of topology segments: labels of Kubernetes nodes that the manager knows.
const (
	keyZone   = "topology.kubernetes.io/zone"
	keyRegion = "topology.kubernetes.io/region"
	keyHost   = "kubernetes.io/hostname"
	// settingKeys names the keys that volumes may be bound by.
	settingKeys = setting.CSIAllowedTopologyKeys
)

// allowedKeys are the keys that volumes may be bound by, as the setting says; none by default.
func allowedKeys(ctx context.Context, m Manager) ([]string, error) {
	s, err := m.Setting(ctx, settingKeys)
	if err != nil {
		return nil, err
	}
	var keys []string
	for key := range strings.SplitSeq(s.Value, ",") {
		if key = strings.TrimSpace(key); key != "" {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// place derives where replicas may be. A volume can be used from any node, wherever its replicas
// are, so that nothing limits them unless the class asks for it.
func (o *order) place(r *spec.TopologyRequirement) error {
	terms := r.GetPreferred()
	if len(terms) == 0 {
		terms = r.GetRequisite()
	}
	switch {
	case o.topologyMode == topologyAny && !o.strict:
		o.accessible = terms
		return nil
	case len(terms) == 0:
		return refuse("parameters %s and %s limit where replicas may be, and the claim does not say where it is used: set "+
			"setting %s and volumeBindingMode WaitForFirstConsumer", paramTopology, paramStrict, settingKeys)
	case o.strict:
		if requisite := r.GetRequisite(); len(requisite) > 0 {
			terms = requisite
		}
	default:
		terms = terms[:1]
	}
	for _, t := range terms {
		term := o.term(t)
		if term == (resource.TopologyTerm{}) {
			return refuse("parameter %s limits replicas to the zone or region in which the claim is used, and %v has neither %s "+
				"nor %s", paramTopology, t.GetSegments(), keyZone, keyRegion)
		}
		if !slices.Contains(o.volume.TopologyRequirement, term) {
			o.volume.TopologyRequirement = append(o.volume.TopologyRequirement, term)
		}
	}
	o.accessible, o.offered = terms, slices.Concat(r.GetPreferred(), r.GetRequisite())
	return nil
}

// term is where a topology of a claim has replicas be.
func (o *order) term(t *spec.Topology) resource.TopologyTerm {
	term := resource.TopologyTerm{Zone: t.GetSegments()[keyZone], Region: t.GetSegments()[keyRegion]}
	if o.topologyMode == topologyRegion {
		term.Zone = ""
	}
	return term
}

// settle takes the topology of a volume that is there for what is wanted, if the claim may be used
// there: nodes that come and go while a volume is made change what its claim prefers.
func (o *order) settle(has []resource.TopologyTerm) bool {
	if slices.Equal(has, o.volume.TopologyRequirement) {
		return true
	}
	var there []*spec.Topology
	for _, t := range o.offered {
		if slices.Contains(has, o.term(t)) {
			there = append(there, t)
		}
	}
	if len(there) == 0 {
		return false
	}
	o.accessible = there
	return true
}

// kept are the topologies with the allowed keys alone, each once.
func kept(all []*spec.Topology, keys []string) (out []*spec.Topology) {
	for _, t := range all {
		part := maps.Clone(t.GetSegments())
		maps.DeleteFunc(part, func(key, _ string) bool { return !slices.Contains(keys, key) })
		if len(part) > 0 && !slices.ContainsFunc(out, func(o *spec.Topology) bool { return maps.Equal(o.Segments, part) }) {
			out = append(out, &spec.Topology{Segments: part})
		}
	}
	return out
}
