package controller

import (
	"maps"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"ankole.storage/csi/request"
	"ankole.storage/rest/resource"
)

// place derives where replicas may be. A volume can be used from any node, wherever its replicas
// are, so that nothing limits them unless the class asks for it.
func (o *order) place(r *spec.TopologyRequirement) error {
	terms := r.GetPreferred()
	if len(terms) == 0 {
		terms = r.GetRequisite()
	}
	switch {
	case o.TopologyMode == request.TopologyAny && !o.Strict:
		o.accessible = terms
		return nil
	case len(terms) == 0:
		return request.Refuse("parameters %s and %s limit where replicas may be, and the claim does not say where it is used: set "+
			"setting %s and volumeBindingMode WaitForFirstConsumer", request.ParamTopology, request.ParamStrict,
			request.TopologySetting)
	case o.Strict:
		if requisite := r.GetRequisite(); len(requisite) > 0 {
			terms = requisite
		}
	default:
		terms = terms[:1]
	}
	for _, t := range terms {
		term := o.term(t)
		if term == (resource.TopologyTerm{}) {
			return request.Refuse("parameter %s limits replicas to the zone or region in which the claim is used, and %v has neither %s "+
				"nor %s", request.ParamTopology, t.GetSegments(), request.LabelZone, request.LabelRegion)
		}
		if !slices.Contains(o.Volume.TopologyRequirement, term) {
			o.Volume.TopologyRequirement = append(o.Volume.TopologyRequirement, term)
		}
	}
	o.accessible, o.offered = terms, slices.Concat(r.GetPreferred(), r.GetRequisite())
	return nil
}

// term is where a topology of a claim has replicas be.
func (o *order) term(t *spec.Topology) resource.TopologyTerm {
	term := resource.TopologyTerm{Zone: t.GetSegments()[request.LabelZone], Region: t.GetSegments()[request.LabelRegion]}
	if o.TopologyMode == request.TopologyRegion {
		term.Zone = ""
	}
	return term
}

// settle takes the topology of a volume that is there for what is wanted, if the claim may be used
// there: nodes that come and go while a volume is made change what its claim prefers.
func (o *order) settle(has []resource.TopologyTerm) bool {
	if slices.Equal(has, o.Volume.TopologyRequirement) {
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
