package rest

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resource"
)

func listOrphans(q *request) (any, error) {
	var all lh.OrphanList
	if err := q.server.list(q.Context(), &all); err != nil {
		return nil, fmt.Errorf("listing orphans: %w", err)
	}
	byName(all.Items)
	var views []resource.Orphan
	for i := range all.Items {
		views = append(views, orphanView(q, &all.Items[i]))
	}
	return collection(q, resource.TypeOrphan, views), nil
}

func getOrphan(q *request) (any, error) {
	var o lh.Orphan
	if err := q.server.get(q.Context(), q.params["name"], &o); err != nil {
		return nil, fmt.Errorf("failed to get orphan %s: %w", q.params["name"], err)
	}
	return orphanView(q, &o), nil
}

func orphanView(q *request, o *lh.Orphan) resource.Orphan {
	return resource.Orphan{Resource: q.envelope(resource.TypeOrphan, o.Name, resource.WhenAlways), Name: o.Name,
		NodeID: o.Spec.NodeID, OrphanType: string(o.Spec.OrphanType), DataEngine: string(o.Spec.DataEngine),
		Parameters: o.Spec.Parameters}
}

// deleteOrphan has what the orphan stands for removed, in the background.
func deleteOrphan(q *request) (any, error) {
	o := &lh.Orphan{ObjectMeta: metav1.ObjectMeta{Name: q.params["name"], Namespace: q.server.cfg.Namespace}}
	if err := q.server.cfg.Client.Delete(q.Context(), o); err != nil {
		return nil, fmt.Errorf("failed to delete orphan %s: %w", o.Name, err)
	}
	return nil, nil
}
