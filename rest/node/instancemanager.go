package node

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/findings"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

var instanceManagers = serve.Kind[lh.InstanceManager, *lh.InstanceManager, resource.InstanceManager]{
	TypeID: resource.TypeInstanceManager, What: "instance manager", View: instanceManagerView,
	List: func() (client.ObjectList, *[]lh.InstanceManager) {
		all := &lh.InstanceManagerList{}
		return all, &all.Items
	},
}

func instanceManagerView(q *serve.Request, im *lh.InstanceManager) resource.InstanceManager {
	out := resource.InstanceManager{Resource: q.Envelope(resource.TypeInstanceManager, im.Name, resource.WhenAlways),
		CurrentState: string(im.Status.CurrentState), Image: im.Spec.Image, Name: im.Name, NodeID: im.Spec.NodeID,
		ManagerType: string(im.Spec.Type), DataEngine: string(im.Spec.DataEngine),
		InstanceEngines: processViews(im.Status.InstanceEngines), InstanceReplicas: processViews(im.Status.InstanceReplicas),
		Instances: processViews(im.Status.Instances), Conditions: serve.ConditionMap(im.Status.Conditions)}
	out.WaitsFor = findings.InstanceManager(&out)
	return out
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
