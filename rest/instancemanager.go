package rest

import (
	"fmt"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resource"
)

func listInstanceManagers(q *request) (any, error) {
	var all lh.InstanceManagerList
	if err := q.server.list(q.Context(), &all); err != nil {
		return nil, fmt.Errorf("listing instance managers: %w", err)
	}
	byName(all.Items)
	var views []resource.InstanceManager
	for i := range all.Items {
		views = append(views, instanceManagerView(q, &all.Items[i]))
	}
	return collection(q, resource.TypeInstanceManager, views), nil
}

func getInstanceManager(q *request) (any, error) {
	var im lh.InstanceManager
	if err := q.server.get(q.Context(), q.params["name"], &im); err != nil {
		return nil, fmt.Errorf("failed to get instance manager %s: %w", q.params["name"], err)
	}
	return instanceManagerView(q, &im), nil
}

func instanceManagerView(q *request, im *lh.InstanceManager) resource.InstanceManager {
	return resource.InstanceManager{Resource: q.envelope(resource.TypeInstanceManager, im.Name, resource.WhenAlways),
		CurrentState: string(im.Status.CurrentState), Image: im.Spec.Image, Name: im.Name, NodeID: im.Spec.NodeID,
		ManagerType: string(im.Spec.Type), DataEngine: string(im.Spec.DataEngine),
		InstanceEngines: processViews(im.Status.InstanceEngines), InstanceReplicas: processViews(im.Status.InstanceReplicas),
		Instances: processViews(im.Status.Instances)}
}

// processViews converts processes; no map stays no map, which clients see as null.
func processViews(in map[string]lh.InstanceProcess) map[string]resource.InstanceProcess {
	if in == nil {
		return nil
	}
	out := map[string]resource.InstanceProcess{}
	for name, p := range in {
		s := p.Status
		out[name] = resource.InstanceProcess{Spec: resource.InstanceProcessSpec{Name: p.Spec.Name,
			DataEngine: string(p.Spec.DataEngine)},
			Status: resource.InstanceProcessStatus{Conditions: s.Conditions, Endpoint: s.Endpoint, ErrorMsg: s.ErrorMsg,
				Listen:  s.Listen,
				PortEnd: int32(s.PortEnd), PortStart: int32(s.PortStart), ResourceVersion: s.ResourceVersion,
				State: string(s.State), ProcessType: string(s.Type), UUID: s.UUID}}
	}
	return out
}
