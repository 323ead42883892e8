package node

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

var orphans = serve.Kind[lh.Orphan, *lh.Orphan, resource.Orphan]{
	TypeID: resource.TypeOrphan, What: "orphan", View: orphanView,
	List: func() (client.ObjectList, *[]lh.Orphan) {
		all := &lh.OrphanList{}
		return all, &all.Items
	},
}

func orphanView(q *serve.Request, o *lh.Orphan) resource.Orphan {
	return resource.Orphan{Resource: q.Envelope(resource.TypeOrphan, o.Name, resource.WhenAlways), Name: o.Name,
		NodeID: o.Spec.NodeID, OrphanType: string(o.Spec.OrphanType), DataEngine: string(o.Spec.DataEngine),
		Parameters: o.Spec.Parameters}
}

// deleteOrphan has what the orphan stands for removed, in the background.
func deleteOrphan(q *serve.Request) (any, error) {
	o := &lh.Orphan{ObjectMeta: metav1.ObjectMeta{Name: q.Params["name"], Namespace: q.Objects.Namespace}}
	if err := q.Objects.Client.Delete(q.Context(), o); err != nil {
		return nil, fmt.Errorf("failed to delete orphan %s: %w", o.Name, err)
	}
	return nil, nil
}
